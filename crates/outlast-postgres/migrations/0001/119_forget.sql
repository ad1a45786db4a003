-- Deletes what is left of a run that was forgotten and is now started again. Its row is new, so all turns, messages and
-- heartbeats that there are belong to the old one.
CREATE FUNCTION {schema}.forget{v}(runs_ text[]) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM {schema}.inbox i WHERE i.run = ANY (runs_);
    DELETE FROM {schema}.turns t WHERE t.run = ANY (runs_);
    DELETE FROM {schema}.heartbeats h WHERE h.run = ANY (runs_);
    DELETE FROM {schema}.leftovers l WHERE l.run = ANY (runs_);
END
$$
