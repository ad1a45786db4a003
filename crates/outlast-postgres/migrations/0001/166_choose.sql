-- Locks and returns runs that the session may claim now, in order of rank: at most `limit_`. Of the crash classes above
-- 1, only runs of the one that comes first are returned, as many as `rooms_` allows. With `is_trial_`, it returns one
-- run of the last class and nothing else, if there is one. Also returns how many runs of each class the session may
-- still have: 0 for classes that it may not claim any more.
CREATE FUNCTION {schema}.choose{v}(
    session_ text, now_ bigint, limit_ integer, format_ integer, rooms_ integer[], is_trial_ boolean, preference_ bigint,
    priority_age_ bigint, lines_ {schema}.line{v}[], has_codeless_ boolean, OUT ids text[], OUT rooms integer[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    line_ {schema}.line{v};
    found_ record;
    ranks_ bigint[] := '{}';
    classes_ integer[] := '{}';
    -- The last crash class is the last with an entry in `rooms_`.
    last_ CONSTANT integer := cardinality(rooms_);
    none_ CONSTANT integer[] := array_fill(0, ARRAY[last_]);
    class_ integer;
    taken_ integer;
BEGIN
    ids := '{}'; rooms := rooms_;
    FOREACH line_ IN ARRAY lines_ LOOP
        CONTINUE WHEN line_.head > now_;
        found_ := {schema}.ready{v}(session_, now_,
            CASE WHEN line_.crash_class = 0 THEN limit_ ELSE least(limit_, rooms_[line_.crash_class]) END, preference_,
            priority_age_, line_);
        CONTINUE WHEN found_.ids IS NULL;
        ids := ids || found_.ids; ranks_ := ranks_ || found_.ranks;
        classes_ := classes_ || array_fill(line_.crash_class::integer, ARRAY[cardinality(found_.ids)]);
    END LOOP;
    IF has_codeless_ THEN
        FOR found_ IN
            SELECT r.id::text, r.ready_at, r.crash_class FROM {schema}.runs r
            WHERE r.ends_without_code AND r.ready_at IS NOT NULL AND r.ready_at <= now_ AND r.format <= format_
                AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
            ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED
        LOOP
            ids := ids || found_.id; ranks_ := ranks_ || found_.ready_at; classes_ := classes_ || found_.crash_class::integer;
        END LOOP;
    END IF;
    IF is_trial_ AND last_ = ANY (classes_) THEN
        ids := ARRAY(SELECT u.id FROM unnest(ids, ranks_, classes_) AS u (id, rank, class) WHERE u.class = last_
            ORDER BY u.rank, u.id COLLATE "C" LIMIT 1);
        rooms := none_;
        RETURN;
    END IF;
    SELECT u.class INTO class_ FROM unnest(ids, ranks_, classes_) AS u (id, rank, class) WHERE u.class > 0
    ORDER BY u.rank, u.id COLLATE "C" LIMIT 1;
    IF class_ IS NULL AND cardinality(lines_) <= 1 AND NOT has_codeless_ THEN
        RETURN;
    END IF;
    SELECT coalesce(array_agg(c.id ORDER BY c.rank, c.id COLLATE "C"), '{}'), count(*) FILTER (WHERE c.class > 0)
    INTO ids, taken_ FROM (
        SELECT u.id, u.rank, u.class FROM (
            SELECT a.id, a.rank, a.class, row_number() OVER (PARTITION BY a.class ORDER BY a.rank, a.id COLLATE "C") AS nth
            FROM unnest(ids, ranks_, classes_) AS a (id, rank, class)
        ) u WHERE u.class = 0 OR u.class = class_ AND u.nth <= rooms_[class_]
        ORDER BY u.rank, u.id COLLATE "C" LIMIT limit_) c;
    IF taken_ > 0 THEN
        rooms := none_;
        rooms[class_] := rooms_[class_] - taken_;
    END IF;
END
$$
