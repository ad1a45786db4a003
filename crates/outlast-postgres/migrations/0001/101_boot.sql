-- The start time of the server, on the world's clock.
CREATE FUNCTION {schema}.boot{v}() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + clock_offset FROM {schema}.settings
$$
