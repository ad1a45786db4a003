-- The key of a session's advisory lock, which the session's process holds on a connection as long as it lives.
CREATE FUNCTION {schema}.lock_key{v}(id_ text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT hashtextextended({schema_text} || ' ' || id_, 20261115)
$$
