-- Locks and adds runs whose deadline is at most `until_` to the chosen ones: at most `limit_` in total, and of one
-- crash class above 1 only, as many as `rooms_` allows.
CREATE FUNCTION {schema}.choose_overdue{v}(
    until_ bigint, limit_ integer, format_ integer, rooms_ integer[], chosen_ text[], OUT ids text[], OUT rooms integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    late_ record;
    left_ integer;
BEGIN
    ids := chosen_; rooms := rooms_;
    FOR late_ IN
        SELECT r.id, r.crash_class FROM {schema}.runs r
        WHERE r.deadline <= until_ AND r.owner IS NULL AND r.format <= format_ AND r.id <> ALL (chosen_)
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
        ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN late_.crash_class > 0 AND rooms[late_.crash_class] <= 0;
        IF late_.crash_class > 0 THEN
            left_ := rooms[late_.crash_class] - 1;
            rooms := array_fill(0, ARRAY[cardinality(rooms_)]);
            rooms[late_.crash_class] := left_;
        END IF;
        ids := array_append(ids, late_.id);
        EXIT WHEN cardinality(ids) >= limit_;
    END LOOP;
END
$$
