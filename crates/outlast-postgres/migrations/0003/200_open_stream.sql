-- Creates a stream unless it exists. Returns `false` if the run has `limit_` streams already. Chunks of a deleted run with
-- the same id, which nobody can read any more, are deleted first.
CREATE FUNCTION {schema}.open_stream{v}(run_ text, stream_ text, limit_ bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM {schema}.streams s WHERE s.run = run_ AND s.name = stream_) THEN
        RETURN true;
    END IF;
    IF (SELECT count(*) FROM {schema}.streams s WHERE s.run = run_) >= limit_ THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.chunks c WHERE c.run = run_ AND c.stream = stream_;
    INSERT INTO {schema}.streams (run, name) VALUES (run_, stream_) ON CONFLICT DO NOTHING;
    RETURN true;
END
$$
