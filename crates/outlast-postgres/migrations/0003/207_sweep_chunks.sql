-- Deletes chunks of deleted runs, at most `rows_`. Returns whether there are more. The chunks of a stream that exists
-- belong to a new run with the same id.
CREATE FUNCTION {schema}.sweep_chunks{v}(rows_ integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    runs_ text[];
    swept_ bigint;
BEGIN
    SELECT array_agg(l.run::text) INTO runs_ FROM (SELECT run FROM {schema}.chunk_leftovers ORDER BY run LIMIT 100) l;
    IF runs_ IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.chunks c USING (
        SELECT o.run, o.stream, o.first FROM {schema}.chunks o
        WHERE o.run = ANY (runs_)
            AND NOT EXISTS (SELECT 1 FROM {schema}.streams s WHERE s.run = o.run AND s.name = o.stream)
        LIMIT rows_) old
    WHERE c.run = old.run AND c.stream = old.stream AND c.first = old.first;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    IF swept_ < rows_ THEN
        DELETE FROM {schema}.chunk_leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM {schema}.chunk_leftovers);
END
$$
