-- Commits turns that do nothing beyond their own runs, all at once. Answers what is not simply done, and a
-- row number 0 with the time, whether a worker may have to know, and how the counts move, which a caller that commits
-- more than this leaves for the end (`counts_`).
--
-- Everything is judged against what the statement sees after the session and the rows that change are
-- locked. A turn that adds events is fenced by the key of `turns`; one that adds none has nothing to be fenced
-- by, so it is committed alone (`exclusive_`): no other commit of the session is under way. When another try of
-- the same turns was faster, fewer rows are added than should be: then all of it is undone, to be looked at again.
--
-- `locked_` has the runs whose rows change, and those that fire a timer, even if they only add to their history. A
-- send reads the clock while it has the row. So it is either seen here, or it comes later and has a later moment than
-- the timer: what a worker takes for now is never ahead of the database's clock.
CREATE FUNCTION {schema}.commit(
    session_ text, at_ bigint, exclusive_ boolean, locked_ text[],
    run_ text[], id_ text[], from_ text[], seq_ bigint[], next_seq_ bigint[], turn_at_ bigint[], build_ text[],
    events_ text[], consumed_ bigint[], fired_until_ bigint[], then_ text[], writes_ boolean[],
    clears_deadline_ boolean[], invalid_ boolean[], wake_at_ bigint[], waits_ text[], stuck_reason_ text[],
    stuck_message_ text[], stuck_build_ text[], format_ integer, born_ bigint[], workflow_ text[],
    version_ bigint[], queue_ text[], priority_ smallint[], parent_ text[], parent_op_ bigint[],
    parent_awaits_ boolean[], root_ text[], deadline_ bigint[], counts_ boolean
) RETURNS TABLE (
    nth integer, code text, detail text, moment bigint, rings boolean, statuses text[], changes bigint[]
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint;
    statuses_ text[];
    changes_ bigint[];
    answers_ record;
BEGIN
    IF exclusive_ THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF cardinality(locked_) > 0 THEN
        PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (locked_) ORDER BY r.id FOR NO KEY UPDATE;
    END IF;
    now_ := coalesce(at_, {schema}.clock());
    WITH asked AS (
        SELECT * FROM unnest(run_, id_, from_, seq_, next_seq_, turn_at_, build_, events_, consumed_, fired_until_,
            then_, writes_, clears_deadline_, invalid_, wake_at_, waits_, stuck_reason_, stuck_message_,
            stuck_build_, workflow_, version_, queue_, priority_, parent_, parent_op_, parent_awaits_, root_,
            deadline_) WITH ORDINALITY
            AS a (run, id, "from", seq, next_seq, turn_at, build, events, consumed, fired_until,
            "then", writes, clears_deadline, invalid, wake_at, waits, stuck_reason, stuck_message,
            stuck_build, workflow, version, queue, priority, parent, parent_op, parent_awaits, root,
            deadline, nth)
    ), born AS (
        INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, status, owner, preferred, turn,
            next_seq, turn_at, created_at, updated_at, ended_at, wake_at, waits, ready_at, stuck_reason,
            stuck_message, stuck_build, barred_build, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, format_, a.queue, a.priority,
            CASE a."then" WHEN 'hold' THEN 'running' WHEN 'wait' THEN 'waiting' WHEN 'release' THEN 'pending'
                ELSE a."then" END,
            CASE WHEN a."then" = 'hold' THEN session_ END, CASE WHEN a."then" = 'wait' THEN session_ END,
            a.id, a.next_seq, a.turn_at, now_, now_,
            CASE WHEN a."then" IN ('completed', 'failed', 'cancelled') THEN now_ END,
            a.wake_at, coalesce(a.waits, '[]'), CASE WHEN a."then" = 'release' THEN now_ ELSE a.wake_at END,
            a.stuck_reason, a.stuck_message, a.stuck_build, a.stuck_build, a.parent, a.parent_op,
            a.parent_awaits, a.root,
            CASE WHEN a."then" IN ('completed', 'failed', 'cancelled') THEN NULL
                WHEN a."then" = 'stuck' OR NOT a.clears_deadline THEN a.deadline END
        FROM asked a WHERE a."from" IS NULL AND NOT a.invalid
        ON CONFLICT DO NOTHING
        RETURNING status, ready_at, deadline, owner
    ), judged AS (
        SELECT a.*, r.consumed AS had_consumed, r.owner, tip.turn AS tip_turn, tip.seq AS tip_seq,
            CASE WHEN a."from" IS NULL THEN
                CASE WHEN a.invalid THEN 'invalid'
                    WHEN r.id IS NULL THEN 'ok'
                    WHEN tip.turn = a.id AND EXISTS (SELECT 1 FROM {schema}.turns f
                        WHERE f.run = a.run AND f.seq = 0 AND f.build = a.build) THEN 'done'
                    ELSE 'existed' END
            WHEN r.id IS NULL THEN 'none'
            WHEN tip.turn = a.id THEN 'done'
            WHEN r.owner IS DISTINCT FROM session_ THEN 'owner'
            WHEN tip.turn <> a."from" THEN 'from'
            WHEN tip.seq <> a.seq THEN 'seq'
            WHEN a.invalid THEN 'invalid'
            WHEN a."then" = 'stuck' THEN 'ok'
            WHEN a.consumed < r.consumed THEN 'less'
            WHEN a.consumed > r.sent THEN 'more'
            WHEN a.fired_until IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.inbox i
                WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired_until) THEN 'missed'
            ELSE 'ok' END AS code
        FROM asked a
        LEFT JOIN {schema}.runs r ON r.id = a.run
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = a.run
            ORDER BY t.seq DESC LIMIT 1) last ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), added AS (
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT j.run, j.seq, j.next_seq, j.id, j.turn_at, j.build, j.events
        FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), written AS (
        UPDATE {schema}.runs r SET
            status = CASE j."then" WHEN 'hold' THEN r.status WHEN 'wait' THEN 'waiting'
                WHEN 'release' THEN 'pending' ELSE j."then" END,
            owner = CASE WHEN j."then" = 'hold' THEN r.owner END,
            preferred = CASE j."then" WHEN 'hold' THEN r.preferred WHEN 'wait' THEN session_ END,
            turn = j.id, next_seq = j.next_seq, turn_at = j.turn_at,
            updated_at = CASE WHEN j."then" = 'hold' THEN r.updated_at ELSE now_ END,
            ended_at = CASE WHEN j."then" IN ('completed', 'failed', 'cancelled') THEN now_ END,
            wake_at = CASE WHEN j."then" = 'hold' THEN r.wake_at ELSE j.wake_at END,
            waits = CASE WHEN j."then" = 'hold' THEN r.waits ELSE coalesce(j.waits, '[]') END,
            -- The wait and the check are one statement: an unread message makes it ready at once.
            ready_at = CASE
                WHEN j."then" = 'hold' THEN r.ready_at
                WHEN j."then" IN ('wait', 'release') THEN
                    CASE WHEN r.sent > j.consumed OR j."then" = 'release' THEN least(now_, coalesce(j.wake_at, now_))
                        ELSE j.wake_at END
                WHEN j."then" = 'stuck' AND r.codeless > r.consumed AND
                    (j.next_seq = 1 OR EXISTS (SELECT 1 FROM {schema}.inbox i WHERE i.run = j.run
                        AND i.position > r.consumed AND i.kind = 'terminate')) THEN now_ END,
            consumed = CASE WHEN j."then" = 'stuck' THEN r.consumed ELSE j.consumed END,
            crashes = 0,
            deadline = CASE WHEN j."then" IN ('completed', 'failed', 'cancelled') THEN NULL
                WHEN j.clears_deadline AND j."then" <> 'stuck' THEN NULL ELSE r.deadline END,
            -- Of the messages that need no code, a run that is no longer fresh can only obey one kind.
            codeless = CASE
                WHEN j."then" = 'hold' THEN r.codeless
                WHEN j."then" IN ('completed', 'failed', 'cancelled') THEN 0
                WHEN r.codeless <= CASE WHEN j."then" = 'stuck' THEN r.consumed ELSE j.consumed END THEN 0
                WHEN j.next_seq = 1 THEN r.codeless
                ELSE (SELECT coalesce(max(i.position), 0) FROM {schema}.inbox i WHERE i.run = j.run AND i.kind = 'terminate'
                    AND i.position > CASE WHEN j."then" = 'stuck' THEN r.consumed ELSE j.consumed END) END,
            stuck_reason = j.stuck_reason, stuck_message = j.stuck_message, stuck_build = j.stuck_build,
            barred_build = coalesce(j.stuck_build, r.barred_build)
        FROM judged j
        WHERE r.id = j.run AND j.code = 'ok' AND j."from" IS NOT NULL AND (j.writes OR j.consumed > j.had_consumed)
        RETURNING r.id, r.owner, r.status, r.ready_at, r.deadline
    ), blanked AS (
        UPDATE {schema}.inbox i SET body = NULL, raw = NULL, headers = NULL
        FROM judged j
        WHERE j.code = 'ok' AND j.consumed > j.had_consumed AND j."then" <> 'stuck'
            AND i.run = j.run AND i.position > j.had_consumed AND i.position <= j.consumed
            AND coalesce(pg_column_size(i.body), 0) + coalesce(pg_column_size(i.raw), 0)
                + coalesce(pg_column_size(i.headers), 0) > 512
    ), changed AS (
        SELECT w.status, 1 AS change, w.owner, w.ready_at, w.deadline FROM written w WHERE w.owner IS NULL
        UNION ALL
        SELECT 'running', -1, NULL, NULL, NULL FROM written w WHERE w.owner IS NULL
        UNION ALL
        SELECT b.status, 1, b.owner, b.ready_at, b.deadline FROM born b
    ), told AS (
        SELECT j.nth, j.code,
            CASE j.code WHEN 'owner' THEN j.owner WHEN 'from' THEN j.tip_turn WHEN 'seq' THEN j.tip_seq::text END AS detail
        FROM judged j WHERE j.code NOT IN ('ok', 'done')
    )
    SELECT (SELECT count(*) FROM added) = (SELECT count(*) FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL)
        AND (SELECT count(*) FROM born) = (SELECT count(*) FROM judged j WHERE j.code = 'ok' AND j."from" IS NULL)
        AS is_whole,
        (SELECT array_agg(c.status) FROM changed c) AS statuses, (SELECT array_agg(c.change) FROM changed c) AS changes,
        (SELECT bool_or(c.owner IS NULL AND (c.ready_at IS NOT NULL OR c.deadline IS NOT NULL)) FROM changed c) AS rings,
        (SELECT array_agg(t.nth ORDER BY t.nth) FROM told t) AS nths,
        (SELECT array_agg(t.code ORDER BY t.nth) FROM told t) AS codes,
        (SELECT array_agg(t.detail ORDER BY t.nth) FROM told t) AS details
    INTO answers_;
    IF NOT answers_.is_whole THEN
        RAISE EXCEPTION 'another try of a turn was faster' USING ERRCODE = '40001';
    END IF;
    -- Behind all that this may have waited for: others wait for these rows too.
    IF cardinality(born_) > 0 THEN
        PERFORM {schema}.widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(born_) AS b (born);
    END IF;
    IF answers_.statuses IS NOT NULL AND counts_ THEN
        PERFORM {schema}.count(answers_.statuses, answers_.changes);
    END IF;
    IF answers_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth::integer, t.code, t.detail, NULL::bigint, NULL::boolean, NULL::text[],
            NULL::bigint[]
        FROM unnest(answers_.nths, answers_.codes, answers_.details) AS t (nth, code, detail);
    END IF;
    nth := 0; code := 'now'; detail := NULL; moment := now_; rings := coalesce(answers_.rings, false);
    statuses := answers_.statuses; changes := answers_.changes;
    RETURN NEXT;
END
$$
