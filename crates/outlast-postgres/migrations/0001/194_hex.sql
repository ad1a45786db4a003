-- A number of 128 bits as 32 hexadecimal digits, as the library writes digests.
CREATE FUNCTION {schema}.hex{v}(bits_ numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    digits_ text := '';
BEGIN
    FOR nth_ IN 1..32 LOOP
        digits_ := substr('0123456789abcdef', (bits_ % 16)::integer + 1, 1) || digits_;
        bits_ := div(bits_, 16);
    END LOOP;
    RETURN digits_;
END
$$
