-- Stores the lowest rules of all joined sessions, for new runs. The row is locked before the sessions are read, so that
-- of two sessions that join at the same time the second sees the first.
CREATE FUNCTION {schema}.refresh_rules{v}() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known_ integer;
BEGIN
    PERFORM 1 FROM {schema}.settings FOR NO KEY UPDATE;
    known_ := (SELECT min(s.rules) FROM {schema}.sessions s WHERE s.ended_at IS NULL);
    UPDATE {schema}.settings SET rules = known_ WHERE rules IS DISTINCT FROM known_;
END
$$
