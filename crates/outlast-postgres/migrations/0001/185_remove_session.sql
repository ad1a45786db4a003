-- Deletes a session that has ended and holds no runs any more. Also deletes heartbeat details of runs that have ended:
-- a worker may have ended a run and stopped before its next beat. Rows that a beat is deleting are skipped.
CREATE FUNCTION {schema}.remove_session{v}(id_ text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM {schema}.sessions s WHERE s.id = id_ AND s.ended_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.owner = id_);
    DELETE FROM {schema}.heartbeats h USING (
        SELECT k.run, k.op FROM {schema}.heartbeats k JOIN {schema}.runs r ON r.id = k.run
        WHERE r.ended_at IS NOT NULL FOR UPDATE OF k SKIP LOCKED) old
    WHERE h.run = old.run AND h.op = old.op;
END
$$
