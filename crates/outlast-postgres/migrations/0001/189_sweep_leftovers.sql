-- Deletes a part of the leftovers. Returns whether there are more.
CREATE FUNCTION {schema}.sweep_leftovers{v}(rows_ integer) RETURNS boolean LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    runs_ text[];
BEGIN
    SELECT array_agg(l.run::text) INTO runs_ FROM (SELECT run FROM {schema}.leftovers ORDER BY run LIMIT 100) l;
    IF runs_ IS NULL THEN
        RETURN false;
    END IF;
    IF {schema}.sweep{v}(runs_, rows_, true) THEN
        DELETE FROM {schema}.leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM {schema}.leftovers);
END
$$
