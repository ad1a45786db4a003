-- Deletes a session that has ended and holds no runs any more.
CREATE FUNCTION {schema}.remove_session{v}(id_ text) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM {schema}.sessions s WHERE s.id = id_ AND s.ended_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.owner = id_);
END
$$
