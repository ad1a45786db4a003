-- Widens the skew to include new runs, in milliseconds. It is rounded to about a second, so that the row rarely
-- changes.
CREATE FUNCTION {schema}.widen{v}(lowest_ bigint, highest_ bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    low_  bigint := (lowest_ >> 10) << 10;
    high_ bigint := highest_ | 1023;
BEGIN
    PERFORM 1 FROM {schema}.skew WHERE lowest <= low_ AND highest >= high_;
    IF NOT FOUND THEN
        INSERT INTO {schema}.skew AS skew (one, lowest, highest) VALUES (true, low_, high_)
        ON CONFLICT (one) DO UPDATE
        SET lowest = least(skew.lowest, low_), highest = greatest(skew.highest, high_);
    END IF;
END
$$
