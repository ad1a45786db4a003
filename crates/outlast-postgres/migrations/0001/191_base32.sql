-- The 26 digits of an id, which follow its prefix.
CREATE FUNCTION {schema}.base32{v}(bits_ numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    digits_ text := '';
BEGIN
    FOR nth_ IN 1..26 LOOP
        digits_ := substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (bits_ % 32)::integer + 1, 1) || digits_;
        bits_ := div(bits_, 32);
    END LOOP;
    RETURN digits_;
END
$$
