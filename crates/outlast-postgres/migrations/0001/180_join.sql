-- Opens a session, and lets its build try what another one left stuck in its queues. A repeated join changes nothing.
CREATE FUNCTION {schema}.join(
    at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, served_ text[], time_ bigint, has_lock_ boolean,
    workflows_ text[], versions_ bigint[],
    OUT moment bigint, OUT rings boolean
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    ids_ text[];
BEGIN
    moment := coalesce(at_, {schema}.clock());
    rings := false;
    INSERT INTO {schema}.sessions (id, host, pid, build, code, queues, time, joined_at, expires_at, beat_at, boot,
        has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, moment,
        least(moment, 9223372036854775807 - time_) + time_, moment, {schema}.boot(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- On both sides of what its own build left, so that it does not look at those.
        SELECT array_agg(other.id::text) INTO ids_ FROM (
            SELECT r.id FROM unnest(workflows_, versions_) AS c (workflow, version)
            JOIN {schema}.runs r ON r.workflow = c.workflow AND r.version = c.version AND r.barred_build < build_
            WHERE r.status = 'stuck' AND r.ready_at IS NULL AND r.queue = ANY (served_)
            UNION ALL
            SELECT r.id FROM unnest(workflows_, versions_) AS c (workflow, version)
            JOIN {schema}.runs r ON r.workflow = c.workflow AND r.version = c.version AND r.barred_build > build_
            WHERE r.status = 'stuck' AND r.ready_at IS NULL AND r.queue = ANY (served_)
        ) AS other;
        rings := ids_ IS NOT NULL;
        IF rings THEN
            PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (ids_) ORDER BY r.id FOR NO KEY UPDATE;
            UPDATE {schema}.runs r SET ready_at = CASE
                WHEN r.status = 'stuck' AND r.barred_build <> build_ AND r.ready_at IS NULL THEN moment
                ELSE r.ready_at END
            WHERE r.id = ANY (ids_);
        END IF;
    END IF;
END
$$
