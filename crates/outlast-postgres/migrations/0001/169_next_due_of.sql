-- When the next run of all these groups is due, or a run that can be ended without code; without those that become
-- overdue. Of runs that are ready now, only those count that other transactions have locked or that wait for their
-- preferred session, and only if there was room for all; of a crash class above 1 only if there is room for it
-- (`rooms_`).
CREATE FUNCTION {schema}.next_due_of{v}(
    session_ text, now_ bigint, has_room_ boolean, format_ integer, rooms_ integer[], preference_ bigint,
    lines_ {schema}.line{v}[], has_codeless_ boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- The number of groups without a ready run that are examined. For the others, `head` is sufficient.
    looks_ CONSTANT integer := 5;
    looked_ integer := 0;
    floor_ CONSTANT bigint := CASE WHEN has_room_ THEN -9223372036854775808 ELSE now_ END;
    line_ {schema}.line{v};
    later_ {schema}.line{v}[] := '{}';
    due_ bigint;
BEGIN
    FOREACH line_ IN ARRAY lines_ LOOP
        IF line_.head <= now_ THEN
            due_ := least(due_, {schema}.next_due{v}(session_, now_,
                CASE WHEN line_.crash_class > 0 AND rooms_[line_.crash_class] <= 0 THEN now_ ELSE floor_ END,
                preference_, line_));
        ELSE
            later_ := array_append(later_, line_);
        END IF;
    END LOOP;
    IF cardinality(later_) > 0 THEN
        FOR line_ IN SELECT (l).* FROM unnest(later_) AS l ORDER BY l.head LIMIT looks_ + 1 LOOP
            looked_ := looked_ + 1;
            EXIT WHEN line_.head >= due_;
            due_ := least(due_, CASE WHEN looked_ > looks_ THEN line_.head
                ELSE {schema}.next_due{v}(session_, now_, floor_, preference_, line_) END);
        END LOOP;
    END IF;
    IF has_codeless_ AND has_room_ THEN
        due_ := least(due_, (
            SELECT min(CASE
                WHEN l.preferred <> session_
                    AND EXISTS (SELECT 1 FROM {schema}.sessions s WHERE s.id = l.preferred AND s.ended_at IS NULL)
                    THEN least(l.ready_at, 9223372036854775807 - preference_) + preference_
                ELSE l.ready_at END)
            FROM (SELECT r.ready_at, r.preferred FROM {schema}.runs r WHERE r.ends_without_code AND r.ready_at IS NOT NULL
                    AND r.format <= format_ AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0 OR r.ready_at > now_)
                ORDER BY r.ready_at, r.id LIMIT 20) l));
    END IF;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$$
