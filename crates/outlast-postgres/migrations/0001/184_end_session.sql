-- Marks a session as ended, once no commit of it is under way; those that come later are refused. Notes what it held, by
-- which a crash is counted. Answers whether it had not ended before. `expires_at_` is what it was seen with: one that has
-- beaten since lives. `class_max_` is the highest crash class.
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
