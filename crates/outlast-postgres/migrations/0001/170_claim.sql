-- Gives the session runs that are ready, in order of rank, and behind them those that are overdue. The last row
-- has no run: it brings the time, when the next run is due, the next deadline, and in `is_overdue` whether something
-- was unread that the session held before; or `gone`.
--
-- Rows are locked as they are found, and those that others have locked are skipped: whoever asks at the same
-- time finds others. The session's row comes first, as in a commit: one that has it for itself may send to a run that is
-- locked here. Where nothing is ready it is only looked at, and a claim that finds nothing writes nothing.
CREATE FUNCTION {schema}.claim(
    session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text,
    format_ integer, suspect_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint
) RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint,
    first_build text, first_events text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
    lines_ {schema}.line[] := {schema}.lines(queues_, workflows_, versions_, build_, format_, false);
    has_codeless_ boolean;
    has_unread_ boolean;
    has_suspects_ boolean;
    has_ready_ boolean;
    has_overdue_ boolean;
    chosen_ record;
    late_ record;
    line_ {schema}.line;
    ids_ text[] := '{}';
    ready_ integer := 0;
    deadline_ bigint;
    due_ bigint;
    status_ text;
BEGIN
    -- Each in the order of its index: without, a database that has not analysed the table may read all of it.
    SELECT (SELECT r.ready_at FROM {schema}.runs r WHERE r.ready_at IS NOT NULL AND r.codeless > 0
            ORDER BY r.ready_at, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.id FROM {schema}.runs r WHERE r.owner = session_ AND r.sent > r.consumed
            ORDER BY r.owner, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.deadline FROM {schema}.runs r WHERE r.owner IS NULL AND r.deadline IS NOT NULL
            ORDER BY r.deadline LIMIT 1),
        suspect_ AND (SELECT r.ready_at FROM {schema}.runs r
            WHERE r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
            ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority, r.ready_at, r.id
            LIMIT 1) IS NOT NULL
    INTO has_codeless_, has_unread_, deadline_, has_suspects_;
    IF has_suspects_ THEN
        lines_ := lines_ || {schema}.lines(queues_, workflows_, versions_, build_, format_, true);
    END IF;
    has_overdue_ := coalesce(deadline_ <= now_ - grace_ AND overdue_from_ <= now_, false);
    has_ready_ := has_codeless_ OR has_overdue_;
    FOREACH line_ IN ARRAY lines_ LOOP
        EXIT WHEN has_ready_;
        has_ready_ := line_.head <= now_;
    END LOOP;
    IF has_ready_ AND limit_ > 0 THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF has_ready_ AND limit_ > 0 THEN
        chosen_ := {schema}.choose(session_, now_, limit_, suspect_, preference_, lines_, has_codeless_);
        ids_ := chosen_.ids;
        ready_ := cardinality(ids_);
        suspect_ := suspect_ AND NOT chosen_.has_suspect;
        IF has_overdue_ AND ready_ < limit_ THEN
            late_ := {schema}.choose_overdue(now_ - grace_, limit_, suspect_, ids_);
            ids_ := late_.ids;
            suspect_ := suspect_ AND NOT late_.has_suspect;
        END IF;
        IF cardinality(ids_) = 1 THEN
            -- One alone is quicker without what is done for many.
            SELECT r.status INTO status_ FROM {schema}.runs r WHERE r.id = ids_[1];
            UPDATE {schema}.runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                waits = '[]', ready_at = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
            WHERE r.id = ids_[1]
            RETURNING r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, r.crashes,
                r.deadline
            INTO run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, deadline;
            PERFORM {schema}.count_move(status_, 'running');
            IF seq = 1 THEN
                -- Nothing is done for a run that had no turn before its first is on disk, and this with it. A server
                -- that crashes before that may forget that the run was given.
                PERFORM set_config('synchronous_commit', 'off', true);
                SELECT t.build, t.events INTO first_build, first_events
                FROM {schema}.turns t WHERE t.run = ids_[1] AND t.seq = 0;
            END IF;
            code := 'given'; is_overdue := ready_ = 0;
            RETURN NEXT;
            run := NULL;
        ELSIF cardinality(ids_) > 1 THEN
            RETURN QUERY SELECT g.* FROM {schema}.give(session_, now_, ids_, ready_) g;
        END IF;
    END IF;
    IF cardinality(lines_) > 0 OR has_codeless_ THEN
        due_ := {schema}.next_due_of(session_, now_, limit_ > ready_, suspect_, preference_, lines_, has_codeless_);
    END IF;
    IF has_overdue_ AND cardinality(ids_) < limit_ THEN
        -- One that is left has somebody else locked, who will let go of it.
        PERFORM 1 FROM {schema}.runs r WHERE r.owner IS NULL AND r.deadline <= now_ - grace_ AND (r.crashes < 2 OR suspect_)
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
    code := 'now'; deadline := deadline_; is_overdue := has_unread_; moment := now_; next_due := due_;
    RETURN NEXT;
END
$$
