-- Opens a session, and lets its build try what another one left stuck in its queues. A repeated join changes nothing.
CREATE FUNCTION {schema}.join(
    at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, served_ text[], time_ bigint, has_lock_ boolean,
    workflows_ text[], versions_ bigint[],
    OUT moment bigint, OUT rings boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    moment := coalesce(at_, {schema}.clock());
    rings := false;
    INSERT INTO {schema}.sessions (id, host, pid, build, code, queues, time, joined_at, expires_at, beat_at, boot,
        has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, moment,
        least(moment, 9223372036854775807 - time_) + time_, moment, {schema}.boot(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        UPDATE {schema}.runs r SET ready_at = moment
        FROM unnest(workflows_, versions_) AS c (workflow, version)
        WHERE r.status = 'stuck' AND r.workflow = c.workflow AND r.version = c.version
            AND r.queue = ANY (served_) AND r.barred_build <> build_ AND r.ready_at IS NULL;
        rings := FOUND;
    END IF;
END
$$
