-- Assigns one run that was just started to the session, if it may have it; the rows are those of `claim`. It is for a
-- worker whose last claim found everything else: `claim` searches a dozen places.
CREATE FUNCTION {schema}.claim_one{v}(
    session_ text, at_ bigint, run_ text, queues_ text[], workflows_ text[], versions_ bigint[],
    format_ integer
) RETURNS TABLE (
    code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint,
    consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint,
    next_deadline bigint, first_build text, first_events text, {column_types}
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
BEGIN
    PERFORM 1 FROM {schema}.runs r WHERE r.id = run_ AND r.status = 'pending' AND r.ready_at <= now_
        AND r.queue = ANY (queues_) AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
            WHERE c.workflow = r.workflow AND c.version = r.version);
    IF FOUND THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        -- Another session has claimed it, or this one may not. As in `claim`, a claim that finds nothing writes nothing.
        run_ := NULL;
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF run_ IS NOT NULL THEN
        SELECT r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, {r.columns}
        INTO run, workflow, version, turn, seq, turn_at, sent, consumed, {columns}
        FROM {schema}.runs r
        WHERE r.id = run_ AND r.status = 'pending' AND r.owner IS NULL AND r.next_seq = 1 AND r.ready_at <= now_
            AND r.crash_class = 0 AND NOT r.ends_without_code AND r.failed_builds = '' AND r.queue = ANY (queues_)
            AND r.format <= format_
            AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
                WHERE c.workflow = r.workflow AND c.version = r.version)
        FOR NO KEY UPDATE SKIP LOCKED;
        -- Need not be durable, as in `give`.
        PERFORM set_config('synchronous_commit', 'off', true);
        IF run IS NULL THEN
            -- Another transaction has locked it, perhaps for a moment only. Try again soon.
            next_due := now_ + 5000;
        ELSE
            UPDATE {schema}.runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                ready_at = NULL
            WHERE r.id = run_;
            PERFORM {schema}.count_move{v}('pending', 'running');
            SELECT t.build, t.events INTO first_build, first_events
            FROM {schema}.turns t WHERE t.run = run_ AND t.seq = 0;
            code := 'given'; is_known := false; has_details := false;
            is_overdue := false;
            RETURN NEXT;
        END IF;
    END IF;
    code := 'now'; run := NULL; is_overdue := false; moment := now_;
    RETURN NEXT;
END
$$
