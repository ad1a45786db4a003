-- The groups of `runs_ready` that contain runs and from which the session may claim. `workflows_` and `versions_` are
-- sorted; `rooms_` is, by crash class, how many runs the session may have; class 0 has no entry.
--
-- It skips from group to group: to the first one after the last, or to that of the next code that the session has. So
-- its cost is limited both by the number of groups in the table and by the number of codes; a worker that has the code
-- of many workflows and steps searches only for those that have ready runs.
CREATE FUNCTION {schema}.lines{v}(
    queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, rooms_ integer[]
) RETURNS {schema}.line{v}[] LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Copies as local variables, whose elements are faster to access.
    names_ text[] := workflows_;
    numbers_ bigint[] := versions_;
    count_ CONSTANT integer := cardinality(workflows_);
    lines_ {schema}.line{v}[] := '{}';
    line_ {schema}.line{v};
    next_ record;
    nth_ integer;
    until_ integer;
    middle_ integer;
BEGIN
    FOREACH line_.queue IN ARRAY CASE WHEN count_ = 0 THEN '{}' ELSE queues_ END LOOP
        nth_ := 1;
        line_.workflow := ''; line_.version := -1; line_.format := -1; line_.failed_builds := ''; line_.crash_class := -1;
        line_.priority := -1;
        LOOP
            SELECT r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority, r.ready_at INTO next_
            FROM {schema}.runs r
            WHERE r.queue = line_.queue AND r.ready_at IS NOT NULL AND NOT r.ends_without_code
                AND (r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority)
                    > (line_.workflow, line_.version, line_.format, line_.failed_builds, line_.crash_class, line_.priority)
            ORDER BY r.queue, r.workflow, r.version, r.format, r.failed_builds, r.crash_class, r.priority, r.ready_at, r.id
            LIMIT 1;
            EXIT WHEN NOT FOUND;
            -- Binary search: the first code that is not before the group.
            until_ := count_ + 1;
            WHILE nth_ < until_ LOOP
                middle_ := (nth_ + until_) / 2;
                IF names_[middle_] COLLATE "C" < next_.workflow
                    OR names_[middle_] = next_.workflow AND numbers_[middle_] < next_.version THEN
                    nth_ := middle_ + 1;
                ELSE
                    until_ := middle_;
                END IF;
            END LOOP;
            EXIT WHEN nth_ > count_;
            IF names_[nth_] <> next_.workflow OR numbers_[nth_] <> next_.version THEN
                line_.workflow := names_[nth_]; line_.version := numbers_[nth_];
                line_.format := -1; line_.failed_builds := ''; line_.crash_class := -1; line_.priority := -1;
                CONTINUE;
            END IF;
            line_.workflow := next_.workflow; line_.version := next_.version; line_.format := next_.format;
            line_.failed_builds := next_.failed_builds; line_.crash_class := next_.crash_class;
            line_.priority := next_.priority; line_.head := next_.ready_at;
            IF line_.format > format_ THEN
                -- Skip all groups of this code.
                line_.format := 2147483647; line_.crash_class := 32767; line_.priority := 32767;
            ELSIF line_.failed_builds <> '' AND line_.failed_builds::jsonb ? build_ THEN
                line_.crash_class := 32767; line_.priority := 32767;
            ELSIF line_.crash_class > 0 AND rooms_[line_.crash_class] <= 0 THEN
                line_.priority := 32767;
            ELSE
                lines_ := array_append(lines_, line_);
            END IF;
        END LOOP;
    END LOOP;
    RETURN lines_;
END
$$
