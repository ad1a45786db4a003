-- Opens a session. A repeated join changes nothing. Returns the time.
CREATE FUNCTION {schema}.join{v}(
    at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, time_ bigint, has_lock_ boolean,
    rules_ integer, format_ integer, interface_ integer, version_ text
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
BEGIN
    INSERT INTO {schema}.sessions (id, host, pid, build, code, queues, time, rules, format, interface, version, joined_at,
        expires_at, beat_at, boot, has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, rules_, format_, interface_, version_, now_,
        least(now_, 9223372036854775807 - time_) + time_, now_, {schema}.boot{v}(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM {schema}.refresh_rules{v}();
    END IF;
    RETURN now_;
END
$$
