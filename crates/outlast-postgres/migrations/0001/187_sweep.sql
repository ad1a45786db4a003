-- Forgets turns and messages of runs that are forgotten, at most so many of each. Answers whether that was all.
CREATE FUNCTION {schema}.sweep(runs_ text[], limit_ integer) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    turns_ bigint;
    messages_ bigint;
BEGIN
    DELETE FROM {schema}.turns t USING (SELECT o.run, o.seq FROM {schema}.turns o WHERE o.run = ANY (runs_) LIMIT limit_) old
    WHERE t.run = old.run AND t.seq = old.seq;
    GET DIAGNOSTICS turns_ = ROW_COUNT;
    DELETE FROM {schema}.inbox i USING (SELECT o.run, o.position FROM {schema}.inbox o WHERE o.run = ANY (runs_) LIMIT limit_) old
    WHERE i.run = old.run AND i.position = old.position;
    GET DIAGNOSTICS messages_ = ROW_COUNT;
    RETURN turns_ < limit_ AND messages_ < limit_;
END
$$
