-- Deletes leftovers of a deleted run that is started again. Its row is new, so all turns, messages and heartbeats
-- belong to the deleted run.
CREATE FUNCTION {schema}.forget{v}(runs_ text[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM {schema}.inbox i WHERE i.run = ANY (runs_);
    DELETE FROM {schema}.turns t WHERE t.run = ANY (runs_);
    DELETE FROM {schema}.heartbeats h WHERE h.run = ANY (runs_);
    DELETE FROM {schema}.leftovers l WHERE l.run = ANY (runs_);
END
$$
