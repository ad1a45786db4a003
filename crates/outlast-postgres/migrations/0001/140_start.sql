-- Starts runs that no session holds. Returns the starts that found an existing run, as `put_starts`, and a row number 0
-- with the time. In a transaction of a user (`appends_`), which may stay open for long, nothing but the runs and their
-- keys is locked.
CREATE FUNCTION {schema}.start{v}(at_ bigint, starts_ json, events_ text[], appends_ boolean)
RETURNS TABLE (nth integer, code text, run text, workflow text, moment bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    put_ record;
BEGIN
    FOR put_ IN SELECT * FROM {schema}.put_starts{v}(now_, starts_, events_, '{}') LOOP
        IF put_.nth > 0 THEN
            nth := put_.nth; code := put_.code; run := put_.run; workflow := put_.workflow; moment := NULL;
            RETURN NEXT;
        ELSIF put_.added > 0 AND appends_ THEN
            INSERT INTO {schema}.unmerged (status, n, lowest, highest)
            VALUES ('pending', put_.added, put_.lowest, put_.highest);
        ELSIF put_.added > 0 THEN
            -- Lock these rows after the keys, for which this statement may have waited.
            PERFORM {schema}.widen{v}(put_.lowest, put_.highest);
            PERFORM {schema}.count{v}(ARRAY['pending'], ARRAY[put_.added]);
        END IF;
    END LOOP;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$$
