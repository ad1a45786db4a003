-- Marks a session as ended, after its running commits have finished; later ones are refused. Stores what it held, which
-- decides how a crash is counted. Returns whether the session had not ended before. `expires_at_` is the value that the
-- caller has read: a session that has been renewed since is alive. `class_max_` is the highest crash class.
CREATE FUNCTION {schema}.end_session{v}(now_ bigint, id_ text, has_crashed_ boolean, expires_at_ bigint, class_max_ integer)
RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    held_ record;
BEGIN
    PERFORM 1 FROM {schema}.sessions s
    WHERE s.id = id_ AND s.ended_at IS NULL AND s.expires_at = coalesce(expires_at_, s.expires_at) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT count(*) AS runs, coalesce(max(least(r.crashes, class_max_)), 0) AS class INTO held_
    FROM {schema}.runs r WHERE r.owner = id_;
    UPDATE {schema}.sessions s SET ended_at = now_, crashed = has_crashed_, held_runs = held_.runs,
        held_class = held_.class
    WHERE s.id = id_;
    RETURN true;
END
$$
