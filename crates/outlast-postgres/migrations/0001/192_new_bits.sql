-- The bits of a new id: the time in milliseconds, and 80 random bits.
CREATE FUNCTION {schema}.new_bits{v}(now_ bigint) RETURNS numeric LANGUAGE sql VOLATILE AS $$
    SELECT div(now_, 1000) * 1208925819614629174706176
        + ('x' || substr(chance.hex, 1, 12))::bit(48)::bigint::numeric * 4294967296
        + ('x' || substr(chance.hex, 25, 8))::bit(32)::bigint
    FROM (SELECT replace(gen_random_uuid()::text, '-', '') AS hex) AS chance
$$
