-- Commits turns. Returns the turns that were not simply committed, and a row number 0 with the time and whether a run
-- may have become ready for another worker; or only a row `gone`, if the session has ended.
--
-- `turns_` contains the fields by which the turns are checked, the new `row` as `RowChange` of outlast-core computed
-- it, unless it does not change, and the properties of a run that a turn starts (`start`). The function decides only
-- what the database alone knows: who holds the run and which turn is its last, the time, whether messages are unread,
-- which starts are new, and columns that senders write as well. `children_` and `messages_` are the outboxes;
-- `turn_nth` is the number of their turn.
--
-- Everything is checked against what the statement sees after it has locked the session and the rows that change. A
-- turn that adds events is fenced by the primary key of `turns`. A turn that adds none is not, so it locks the session
-- exclusively (`is_exclusive`): no other commit of the session is executed at the same time. If another transaction
-- commits the same turns meanwhile, fewer rows are inserted than expected; then everything is rolled back (40001), and
-- the caller tries again.
--
-- `locked_` has the runs whose rows change, those whose turns fire a timer, even if they only add to the history, and
-- those that are sent to. A send reads the clock while it has locked the row. So this commit either sees the message,
-- or the message gets a later time than the timer, since a worker's time is never ahead of the database's clock.
--
-- `how_` has the options: `wait_ms` is how long the statement waits for each lock, `named` is the run whose turn waits.
-- With `skips`, turns whose rows are locked by other transactions are answered `locked` and left out. The same holds if
-- the session is locked exclusively, since all other commits of the session would wait as well. With `only_waits`
-- nothing is committed: the statement returns when the rows were free for a moment.
CREATE FUNCTION {schema}.commit{v}(
    session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json,
    child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[]
) RETURNS TABLE (nth integer, code text, detail text, moment bigint, rings boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint;
    is_exclusive_ CONSTANT boolean := coalesce((how_ ->> 'is_exclusive')::boolean, false);
    blocked_ text[];
    left_out_ integer[];
    done_ record;
    sent_ record;
BEGIN
    IF how_ ->> 'wait_ms' IS NOT NULL THEN
        PERFORM set_config('lock_timeout', how_ ->> 'wait_ms', true);
    END IF;
    IF how_ ->> 'named' IS NOT NULL THEN
        -- By this name other processes find the connection, and whom it waits for.
        PERFORM set_config('application_name', 'outlast ' || (how_ ->> 'named'), true);
    END IF;
    IF coalesce((how_ ->> 'only_waits')::boolean, false) THEN
        -- Locks need not be durable.
        PERFORM set_config('synchronous_commit', 'off', true);
        PERFORM {schema}.lock_runs{v}(locked_, false);
        nth := 0; code := 'free';
        RETURN NEXT;
        RETURN;
    END IF;
    IF is_exclusive_ THEN
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    blocked_ := {schema}.lock_runs{v}(locked_, is_exclusive_ OR coalesce((how_ ->> 'skips')::boolean, false));
    left_out_ := CASE WHEN cardinality(blocked_) = 0 THEN '{}'
        ELSE {schema}.turns_of{v}(blocked_, turns_, messages_) END;
    now_ := coalesce(at_, {schema}.clock{v}());
    PERFORM {schema}.free_keys{v}(now_, turns_);
    WITH asked AS (
        SELECT * FROM ROWS FROM (
            json_to_recordset(turns_) AS (
                run text, id text, "from" text, seq bigint, next bigint, at bigint, build text, consumed bigint, fired bigint,
                invalid boolean, writes boolean, format integer, "row" json, tags json, key text, digest text, start json),
            unnest(events_)
        ) WITH ORDINALITY AS a (
            run, id, "from", seq, next, at, build, consumed, fired, invalid, writes, format, "row", tags, key, digest, start, events, nth)
    ), judged AS (
        SELECT a.*, r.consumed AS had_consumed, r.owner, tip.turn AS tip_turn, tip.seq AS tip_seq, k.id AS key_run,
            k.workflow AS key_workflow,
            CASE WHEN a.nth = ANY (left_out_) THEN 'locked'
            WHEN a."from" IS NULL THEN
                CASE WHEN a.invalid THEN 'invalid'
                    WHEN r.id IS NULL AND k.id IS NULL THEN 'ok'
                    WHEN r.id IS NULL AND k.workflow = a.start ->> 'workflow' AND k.key_digest = a.digest THEN 'other'
                    WHEN r.id IS NULL THEN 'taken'
                    WHEN tip.turn = a.id AND EXISTS (SELECT 1 FROM {schema}.turns f
                        WHERE f.run = a.run AND f.seq = 0 AND f.build = a.build) THEN 'done'
                    ELSE 'existed' END
            WHEN r.id IS NULL THEN 'none'
            WHEN tip.turn = a.id THEN 'done'
            WHEN r.owner IS DISTINCT FROM session_ THEN 'owner'
            WHEN tip.turn <> a."from" THEN 'from'
            WHEN tip.seq <> a.seq THEN 'seq'
            WHEN a.invalid THEN 'invalid'
            WHEN a.consumed < r.consumed THEN 'less'
            WHEN a.consumed > r.sent THEN 'more'
            WHEN a.fired IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.inbox i
                WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired) THEN 'missed'
            ELSE 'ok' END AS code
        FROM asked a
        LEFT JOIN {schema}.runs r ON r.id = a.run
        LEFT JOIN LATERAL (SELECT o.id, o.workflow, o.key_digest FROM {schema}.runs o WHERE o.key = a.key) k ON true
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = a.run
            ORDER BY t.seq DESC LIMIT 1) last ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), born AS (
        INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, key, key_digest, status, owner, preferred,
            turn, next_seq, turn_at, created_at, updated_at, ended_at, wake_at, waits, ready_at, cancel_requested, parent,
            parent_op, parent_awaits, root, marks, {assigned})
        SELECT j.run, n.workflow, coalesce(w.version, n.version), greatest(n.format, j.format), n.queue, n.priority, j.key,
            j.digest, w.status,
            CASE WHEN w.held THEN session_ END, CASE WHEN w.preferred THEN session_ END, j.id, j.next, j.at, now_, now_,
            CASE WHEN w.status IN ('completed', 'failed', 'cancelled') THEN now_ END, w.wake_at, coalesce(w.waits, '[]'),
            least(w.read_at, now_ + w.read_after), coalesce(w.cancels, false), n.parent, n.parent_op, n.awaits, n.root,
            coalesce(w.sets_marks, 0), {w.values}
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j.start) AS n (workflow text, version bigint, format integer, queue text,
            priority smallint, parent text, parent_op bigint, awaits boolean, root text)
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, cancels boolean, sets_marks integer, version bigint,
            {column_types})
        WHERE j.code = 'ok' AND j."from" IS NULL ORDER BY j.key COLLATE "C" NULLS FIRST, j.nth
        ON CONFLICT DO NOTHING
        RETURNING status, ready_at, deadline, owner
    ), added AS (
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT j.run, j.seq, j.next, j.id, j.at, j.build, j.events
        FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), written AS (
        UPDATE {schema}.runs r SET status = w.status, owner = CASE WHEN w.held THEN session_ END,
            preferred = CASE WHEN w.preferred THEN session_ END, turn = j.id, next_seq = j.next, turn_at = j.at,
            updated_at = CASE WHEN w.held THEN r.updated_at ELSE now_ END,
            ended_at = CASE WHEN w.status IN ('completed', 'failed', 'cancelled') THEN now_ END,
            wake_at = w.wake_at, waits = coalesce(w.waits, '[]'),
            -- Waiting and checking for messages are one statement: with an unread message the run is ready immediately.
            ready_at = CASE WHEN r.last_terminate > coalesce(j.consumed, r.consumed)
                    OR j.next <= 1 AND r.last_cancel > coalesce(j.consumed, r.consumed)
                THEN least(w.ending_at, now_ + w.ending_after)
                -- Bit 1 of the marks: the run is paused.
                WHEN r.marks & ~coalesce(w.clears_marks, 0) & 1 <> 0 THEN w.paused_at
                WHEN r.sent > coalesce(j.consumed, r.consumed) THEN least(w.unread_at, now_ + w.unread_after)
                ELSE least(w.read_at, now_ + w.read_after) END,
            consumed = coalesce(j.consumed, r.consumed),
            cancel_requested = r.cancel_requested OR coalesce(w.cancels, false),
            marks = r.marks & ~coalesce(w.clears_marks, 0) | coalesce(w.sets_marks, 0),
            format = greatest(r.format, j.format), version = coalesce(w.version, r.version),
            ({assigned}) = ROW({w.values})
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, unread_at bigint, unread_after bigint, ending_at bigint,
            ending_after bigint, paused_at bigint, cancels boolean, clears_marks integer, sets_marks integer,
            version bigint, {column_types})
        WHERE r.id = j.run AND j.code = 'ok' AND j."from" IS NOT NULL 
            AND (j.writes OR j.consumed > j.had_consumed OR j.format > r.format)
        RETURNING r.owner, r.status, r.ready_at, r.deadline
    ), blanked AS (
        UPDATE {schema}.inbox i SET body = NULL, raw = NULL, headers = NULL
        FROM judged j
        WHERE j.code = 'ok' AND j.consumed > j.had_consumed
            AND i.run = j.run AND i.position > j.had_consumed AND i.position <= j.consumed
            AND coalesce(pg_column_size(i.body), 0) + coalesce(pg_column_size(i.raw), 0)
                + coalesce(pg_column_size(i.headers), 0) > 512
    ), tagged AS (
        INSERT INTO {schema}.tags (run, name, value)
        SELECT j.run, t.key, t.value FROM judged j CROSS JOIN LATERAL json_each_text(j.tags) AS t (key, value)
        WHERE j.code = 'ok' AND j.tags IS NOT NULL
        ON CONFLICT (run, name) DO UPDATE SET value = excluded.value
    ), changed AS (
        SELECT w.status, 1 AS change, w.owner, w.ready_at, w.deadline FROM written w WHERE w.owner IS NULL
        UNION ALL
        SELECT 'running', -1, NULL, NULL, NULL FROM written w WHERE w.owner IS NULL
        UNION ALL
        SELECT b.status, 1, b.owner, b.ready_at, b.deadline FROM born b
    ), refused AS (
        SELECT j.nth, j.code, CASE j.code WHEN 'owner' THEN j.owner WHEN 'from' THEN j.tip_turn WHEN 'seq' THEN j.tip_seq::text
            WHEN 'other' THEN j.key_run || ' ' || j.key_workflow WHEN 'taken' THEN j.key_run || ' ' || j.key_workflow END AS detail
        FROM judged j WHERE j.code <> 'ok'
    )
    SELECT (SELECT count(*) FROM added) = (SELECT count(*) FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL)
            AS has_all_turns,
        (SELECT count(*) FROM born) = (SELECT count(*) FROM judged j WHERE j.code = 'ok' AND j."from" IS NULL) AS has_all_runs,
        (SELECT array_agg(c.status::text) FROM changed c) AS statuses, (SELECT array_agg(c.change::bigint) FROM changed c) AS changes,
        (SELECT bool_or(c.owner IS NULL AND (c.ready_at IS NOT NULL OR c.deadline IS NOT NULL)) FROM changed c) AS rings,
        (SELECT min((j.start ->> 'born')::bigint) FROM judged j WHERE j.code = 'ok' AND j.start IS NOT NULL) - now_ / 1000 AS lowest,
        (SELECT max((j.start ->> 'born')::bigint) FROM judged j WHERE j.code = 'ok' AND j.start IS NOT NULL) - now_ / 1000 AS highest,
        (SELECT array_agg(t.nth::integer ORDER BY t.nth) FROM refused t) AS nths,
        (SELECT array_agg(t.code ORDER BY t.nth) FROM refused t) AS codes,
        (SELECT array_agg(t.detail ORDER BY t.nth) FROM refused t) AS details
    INTO done_;
    IF NOT done_.has_all_turns OR NOT done_.has_all_runs THEN
        RAISE EXCEPTION 'another try of a turn was faster' USING ERRCODE = '40001';
    END IF;
    IF json_array_length(children_) > 0 OR json_array_length(messages_) > 0 THEN
        sent_ := {schema}.deliver{v}(now_, children_, child_events_, messages_, bodies_, raws_, coalesce(done_.nths, '{}'));
        done_.statuses := done_.statuses || sent_.statuses;
        done_.changes := done_.changes || sent_.changes;
        done_.lowest := least(done_.lowest, sent_.lowest);
        done_.highest := greatest(done_.highest, sent_.highest);
        done_.rings := true;
    END IF;
    -- Lock these rows last, after everything that this statement may wait for: other transactions need them too.
    IF done_.lowest IS NOT NULL THEN
        PERFORM {schema}.widen{v}(done_.lowest, done_.highest);
    END IF;
    IF done_.statuses IS NOT NULL THEN
        PERFORM {schema}.count{v}(done_.statuses, done_.changes);
    END IF;
    IF done_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.detail, NULL::bigint, NULL::boolean
        FROM unnest(done_.nths, done_.codes, done_.details) AS t (nth, code, detail) WHERE t.code <> 'done';
    END IF;
    nth := 0; code := 'now'; detail := NULL; moment := now_; rings := coalesce(done_.rings, false);
    RETURN NEXT;
END
$$
