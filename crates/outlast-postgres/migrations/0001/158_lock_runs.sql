-- Locks rows of runs, in the order of their ids, to avoid deadlocks. With `skips_` it does not wait, and returns the
-- runs that other transactions have locked.
CREATE FUNCTION {schema}.lock_runs{v}(runs_ text[], skips_ boolean) RETURNS text[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    locked_ text[];
BEGIN
    IF cardinality(runs_) = 0 THEN
        RETURN '{}';
    END IF;
    IF NOT skips_ THEN
        PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
        RETURN '{}';
    END IF;
    locked_ := ARRAY(SELECT r.id::text FROM {schema}.runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(locked_) = cardinality(runs_) THEN
        RETURN '{}';
    END IF;
    -- Runs that do not exist are not locked.
    RETURN ARRAY(SELECT r.id::text FROM {schema}.runs r
        WHERE r.id = ANY (ARRAY(SELECT unnest(runs_) EXCEPT SELECT unnest(locked_))));
END
$$
