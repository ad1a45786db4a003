-- The world's clock, in microseconds. Nothing else reads the time. Not in SQL, like all that is called often: Postgres
-- makes a plan for such a function each time that it is called.
CREATE FUNCTION {schema}.clock{v}() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT s.clock_offset FROM {schema}.settings s);
END
$$
