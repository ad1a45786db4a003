-- A text that a user chose, as the tables store it: see `runs`. A text in SQL contains no NUL.
CREATE FUNCTION {schema}.stored{v}(text_ text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN replace(text_, U&'\E000', U&'\E0001');
END
$$
