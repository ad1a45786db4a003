-- A text that a user chose, as the tables have it: see `runs`. Here no text has a NUL.
CREATE FUNCTION {schema}.stored{v}(text_ text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN replace(text_, U&'\E000', U&'\E0001');
END
$$
