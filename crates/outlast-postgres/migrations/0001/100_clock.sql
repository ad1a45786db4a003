-- The world's clock, in microseconds. Nothing else reads the time.
CREATE FUNCTION {schema}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + clock_offset FROM {schema}.settings
$$
