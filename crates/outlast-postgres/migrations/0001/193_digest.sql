-- The digest of a payload, as the library computes it: FNV-1a with 128 bits.
CREATE FUNCTION {schema}.digest{v}(payload_ text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    bytes_ bytea := convert_to(payload_, 'UTF8');
    hash_ numeric := 144066263297769815596495629667062367629;
    low_ integer;
BEGIN
    FOR nth_ IN 0..length(bytes_) - 1 LOOP
        low_ := (hash_ % 256)::integer;
        hash_ := (hash_ - low_ + (low_ # get_byte(bytes_, nth_))) * 309485009821345068724781371
            % 340282366920938463463374607431768211456;
    END LOOP;
    RETURN hash_;
END
$$
