-- Deletes turns and messages of deleted runs, at most `limit_` of each. Returns whether all are deleted. A run's first
-- turn is deleted last: a start of a run with the same id notices leftovers by it. With `may_be_back_`, runs that have
-- been started again since are skipped, because they have a new history.
CREATE FUNCTION {schema}.sweep{v}(runs_ text[], limit_ integer, may_be_back_ boolean) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    swept_ bigint;
BEGIN
    DELETE FROM {schema}.inbox i USING (
        SELECT m.run, m.position FROM unnest(runs_) AS u (run)
        CROSS JOIN LATERAL (SELECT o.run, o.position FROM {schema}.inbox o WHERE o.run = u.run ORDER BY o.position DESC) m
        WHERE NOT may_be_back_ OR (SELECT r.id FROM {schema}.runs r WHERE r.id = u.run) IS NULL LIMIT limit_) old
    WHERE i.run = old.run AND i.position = old.position;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    IF swept_ = limit_ THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.turns t USING (
        SELECT m.run, m.seq FROM unnest(runs_) AS u (run)
        CROSS JOIN LATERAL (SELECT o.run, o.seq FROM {schema}.turns o WHERE o.run = u.run ORDER BY o.seq DESC) m
        WHERE NOT may_be_back_ OR (SELECT r.id FROM {schema}.runs r WHERE r.id = u.run) IS NULL LIMIT limit_) old
    WHERE t.run = old.run AND t.seq = old.seq;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    RETURN swept_ < limit_;
END
$$
