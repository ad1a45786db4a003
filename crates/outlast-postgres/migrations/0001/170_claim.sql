-- Assigns ready runs to the session, in order of rank, followed by overdue ones. The last row has no run: it has the
-- time, when the next run is due, the next deadline, and in `is_overdue` whether runs that the session held before have
-- unread messages; or it is `gone`. `rooms_` is, by crash class, how many runs the session may have; with `is_trial_`
-- it gets one run of the last class and nothing else, if there is one.
--
-- Rows are locked as they are found, and rows that other transactions have locked are skipped, so concurrent claims
-- find different runs. The session's row is locked first, as in a commit: a commit that has locked the session
-- exclusively may send to a run that is locked here. If nothing is ready, the session is only checked, and the claim
-- writes nothing.
CREATE FUNCTION {schema}.claim{v}(
    session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text,
    format_ integer, rooms_ integer[], is_trial_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint,
    priority_age_ bigint
) RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint,
    next_deadline bigint, first_build text, first_events text, {column_types}
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    lines_ {schema}.line{v}[] := {schema}.lines{v}(queues_, workflows_, versions_, build_, format_, rooms_);
    has_codeless_ boolean;
    has_unread_ boolean;
    has_ready_ boolean;
    has_overdue_ boolean;
    chosen_ record;
    line_ {schema}.line{v};
    ids_ text[] := '{}';
    ready_ integer := 0;
    deadline_ bigint;
    due_ bigint;
BEGIN
    -- Each is sorted as its index. Otherwise Postgres may scan the whole table if it has no statistics.
    SELECT (SELECT r.ready_at FROM {schema}.runs r WHERE r.ready_at IS NOT NULL AND r.ends_without_code
            ORDER BY r.ready_at, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.id FROM {schema}.runs r WHERE r.owner = session_ AND r.sent > r.consumed
            ORDER BY r.owner, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.deadline FROM {schema}.runs r WHERE r.owner IS NULL AND r.deadline IS NOT NULL
            ORDER BY r.deadline LIMIT 1)
    INTO has_codeless_, has_unread_, deadline_;
    has_overdue_ := coalesce(deadline_ <= now_ - grace_ AND overdue_from_ <= now_, false);
    has_ready_ := has_codeless_ OR has_overdue_;
    FOREACH line_ IN ARRAY lines_ LOOP
        EXIT WHEN has_ready_;
        has_ready_ := line_.head <= now_;
    END LOOP;
    IF has_ready_ AND limit_ > 0 THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF has_ready_ AND limit_ > 0 THEN
        chosen_ := {schema}.choose{v}(session_, now_, limit_, format_, rooms_, is_trial_, preference_, priority_age_,
            lines_, has_codeless_);
        ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        ready_ := cardinality(ids_);
        IF has_overdue_ AND ready_ < limit_ AND NOT (is_trial_ AND ready_ = 1 AND 0 = ALL (rooms_)) THEN
            chosen_ := {schema}.choose_overdue{v}(now_ - grace_, limit_, format_, rooms_, ids_);
            ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        END IF;
        IF cardinality(ids_) > 0 THEN
            RETURN QUERY SELECT g.* FROM {schema}.give{v}(session_, now_, ids_, ready_) g;
        END IF;
    END IF;
    IF cardinality(lines_) > 0 OR has_codeless_ THEN
        due_ := {schema}.next_due_of{v}(session_, now_, limit_ > ready_, format_, rooms_, preference_, lines_, has_codeless_);
    END IF;
    IF has_overdue_ AND cardinality(ids_) < limit_ THEN
        -- Another transaction has locked the remaining ones, perhaps for a moment only. Try again soon.
        PERFORM 1 FROM {schema}.runs r WHERE r.owner IS NULL AND r.deadline <= now_ - grace_ AND r.format <= format_
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
        ORDER BY r.deadline LIMIT 1;
        IF FOUND THEN
            due_ := least(due_, now_ + 5000);
        END IF;
    END IF;
    IF deadline_ IS NOT NULL AND (has_overdue_ OR ready_ > 0) THEN
        SELECT r.deadline INTO deadline_ FROM {schema}.runs r WHERE r.owner IS NULL
            AND r.deadline > CASE WHEN overdue_from_ <= now_ THEN now_ - grace_ ELSE -9223372036854775808 END
        ORDER BY r.deadline LIMIT 1;
    END IF;
    code := 'now'; next_deadline := deadline_; is_overdue := has_unread_; moment := now_; next_due := due_;
    RETURN NEXT;
END
$$
