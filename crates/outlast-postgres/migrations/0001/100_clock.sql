-- The world's clock, in microseconds. No other function reads the time. As all functions that are called often, it is
-- not written in SQL: Postgres would plan it at each call.
CREATE FUNCTION {schema}.clock{v}() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT s.clock_offset FROM {schema}.settings s);
END
$$
