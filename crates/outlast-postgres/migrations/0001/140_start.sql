-- Starts runs that nobody holds. Answers what is not simply new, see `put_starts`, and the time with number 0. Within a
-- transaction of others (`appends_`), which may stay open for long, nothing is locked but the runs and their keys.
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
            -- Behind the keys, which this may have waited for.
            PERFORM {schema}.widen{v}(put_.lowest, put_.highest);
            PERFORM {schema}.count{v}(ARRAY['pending'], ARRAY[put_.added]);
        END IF;
    END LOOP;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$$
