-- Deletes the streams and states of deleted runs. Their chunks may be many, so they are deleted later. A trigger calls it,
-- so that programs that know no streams delete them too. In a world without streams and states it reads two pages,
-- however many runs are deleted. The first rows are read in the order of the indexes: otherwise Postgres may scan the
-- tables.
CREATE FUNCTION {schema}.forget_streams() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT s.run FROM {schema}.states s ORDER BY s.run LIMIT 1) IS NOT NULL THEN
        DELETE FROM {schema}.states s USING gone g WHERE s.run = g.id;
    END IF;
    IF (SELECT s.run FROM {schema}.streams s ORDER BY s.run, s.name LIMIT 1) IS NOT NULL THEN
        DELETE FROM {schema}.stream_writers w USING gone g WHERE w.run = g.id;
        WITH forgotten AS (DELETE FROM {schema}.streams s USING gone g WHERE s.run = g.id RETURNING s.run)
        INSERT INTO {schema}.chunk_leftovers (run) SELECT DISTINCT f.run FROM forgotten f ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$$
