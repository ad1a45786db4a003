-- The lines of `runs_ready`, or of `runs_suspects`, that have runs and that the session may claim from, each with the
-- moment when its first run is ready. `workflows_` and `versions_` are in order.
--
-- It leaps from line to line: to the first one behind the last, or to that of the next code that the session
-- has. So it costs no more than there are lines in the table, and no more than there are codes; a worker that
-- has the code of many workflows and steps looks only for those that somebody waits for.
CREATE FUNCTION {schema}.lines(
    queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, suspects_ boolean
) RETURNS TABLE (queue text, workflow text, version bigint, format integer, barred text, priority smallint, head bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    -- Copies, because the elements of those are quick to reach.
    names_ text[] := workflows_;
    numbers_ bigint[] := versions_;
    count_ CONSTANT integer := cardinality(workflows_);
    last_ record;
    nth_ integer;
    until_ integer;
    middle_ integer;
BEGIN
    IF count_ = 0 THEN
        RETURN;
    END IF;
    FOREACH queue IN ARRAY queues_ LOOP
        nth_ := 1;
        workflow := ''; version := -1; format := -1; barred := ''; priority := -1;
        LOOP
            IF suspects_ THEN
                SELECT r.workflow, r.version, r.format, coalesce(r.barred_build, '') AS barred, r.priority, r.ready_at
                INTO last_
                FROM {schema}.runs r
                WHERE r.queue = lines.queue AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
                    AND (r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority)
                        > (lines.workflow, lines.version, lines.format, lines.barred, lines.priority)
                ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority,
                    r.ready_at, r.id LIMIT 1;
            ELSE
                SELECT r.workflow, r.version, r.format, coalesce(r.barred_build, '') AS barred, r.priority, r.ready_at
                INTO last_
                FROM {schema}.runs r
                WHERE r.queue = lines.queue AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                    AND (r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority)
                        > (lines.workflow, lines.version, lines.format, lines.barred, lines.priority)
                ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority,
                    r.ready_at, r.id LIMIT 1;
            END IF;
            EXIT WHEN NOT FOUND;
            -- The first code that is not before the line.
            until_ := count_ + 1;
            WHILE nth_ < until_ LOOP
                middle_ := (nth_ + until_) / 2;
                IF names_[middle_] COLLATE "C" < last_.workflow
                    OR names_[middle_] = last_.workflow AND numbers_[middle_] < last_.version THEN
                    nth_ := middle_ + 1;
                ELSE
                    until_ := middle_;
                END IF;
            END LOOP;
            EXIT WHEN nth_ > count_;
            IF names_[nth_] <> last_.workflow OR numbers_[nth_] <> last_.version THEN
                workflow := names_[nth_]; version := numbers_[nth_]; format := -1; barred := ''; priority := -1;
                CONTINUE;
            END IF;
            workflow := last_.workflow; version := last_.version; format := last_.format; barred := last_.barred;
            IF format > format_ THEN
                -- Behind all of this code.
                format := 2147483647; priority := 32767;
            ELSIF barred = build_ THEN
                priority := 32767;
            ELSE
                priority := last_.priority; head := last_.ready_at;
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
END
$$
