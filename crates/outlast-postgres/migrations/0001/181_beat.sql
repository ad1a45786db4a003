-- Renews a session, and answers how many runs it holds. No row means that it is gone.
CREATE FUNCTION {schema}.beat(at_ bigint, id_ text, report_ text) RETURNS TABLE (held bigint, moment bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
BEGIN
    UPDATE {schema}.sessions s SET beat_at = now_, boot = {schema}.boot(), suspect_since = NULL,
        expires_at = least(now_, 9223372036854775807 - s.time) + s.time, report = report_
    WHERE s.id = id_;
    IF FOUND THEN
        RETURN QUERY SELECT count(*), now_ FROM {schema}.runs r WHERE r.owner = id_;
    END IF;
END
$$
