-- A jsonb value without spaces between its parts, as the library writes payloads.
CREATE FUNCTION {schema}.compact{v}(value_ jsonb) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT regexp_replace(value_::text, '("(?:\\.|[^"\\])*")|\s+', '\1', 'g')
$$
