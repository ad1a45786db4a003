-- Generated: the schema as the migrations leave it.

table counts: status text NOT NULL, slot smallint NOT NULL, n bigint NOT NULL WITH (fillfactor=50)

table inbox: run text NOT NULL, position bigint NOT NULL, id text NOT NULL, at bigint NOT NULL, kind text NOT NULL, name text, op bigint, outcome text, codec text, body text, raw bytea, headers text WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table leftovers: run text NOT NULL

table migrations: version integer NOT NULL, at timestamp with time zone NOT NULL DEFAULT now()

table runs: id text NOT NULL, workflow text NOT NULL, version bigint NOT NULL, format integer NOT NULL, queue text NOT NULL DEFAULT 'default'::text, priority smallint NOT NULL DEFAULT 0, key text, key_digest text, status text NOT NULL, owner text, preferred text, turn text NOT NULL, next_seq bigint NOT NULL, turn_at bigint NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, ended_at bigint, wake_at bigint, waits text NOT NULL DEFAULT '[]'::text, ready_at bigint, codeless bigint NOT NULL DEFAULT 0, sent bigint NOT NULL DEFAULT 0, consumed bigint NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0, stuck_reason text, stuck_message text, stuck_build text, barred_build text, parent text, parent_op bigint, parent_awaits boolean, root text, deadline bigint WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_analyze_scale_factor=0.05)

table sessions: id text NOT NULL, host text NOT NULL, pid bigint NOT NULL, build text NOT NULL, code text NOT NULL, queues text NOT NULL, time bigint NOT NULL, joined_at bigint NOT NULL, expires_at bigint NOT NULL, beat_at bigint NOT NULL, boot bigint NOT NULL, has_lock boolean NOT NULL, suspect_since bigint, report text NOT NULL DEFAULT '{}'::text WITH (fillfactor=50)

table settings: one boolean NOT NULL, clock_offset bigint NOT NULL, identity uuid NOT NULL DEFAULT gen_random_uuid()

table skew: one boolean NOT NULL, lowest bigint NOT NULL, highest bigint NOT NULL

table tags: run text NOT NULL, name text NOT NULL, value text NOT NULL WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table turns: run text NOT NULL, seq bigint NOT NULL, next_seq bigint NOT NULL, id text NOT NULL, at bigint NOT NULL, build text NOT NULL, events text NOT NULL WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

constraint counts_pkey of outlast.counts: PRIMARY KEY (status, slot)

constraint inbox_id of outlast.inbox: UNIQUE (run, id)

constraint inbox_pkey of outlast.inbox: PRIMARY KEY (run, "position")

constraint leftovers_pkey of outlast.leftovers: PRIMARY KEY (run)

constraint migrations_pkey of outlast.migrations: PRIMARY KEY (version)

constraint runs_pkey of outlast.runs: PRIMARY KEY (id)

constraint sessions_pkey of outlast.sessions: PRIMARY KEY (id)

constraint settings_one of outlast.settings: CHECK (one)

constraint settings_pkey of outlast.settings: PRIMARY KEY (one)

constraint skew_one of outlast.skew: CHECK (one)

constraint skew_pkey of outlast.skew: PRIMARY KEY (one)

constraint tags_pkey of outlast.tags: PRIMARY KEY (run, name)

constraint turns_pkey of outlast.turns: PRIMARY KEY (run, seq)

CREATE UNIQUE INDEX counts_pkey ON outlast.counts USING btree (status, slot)

CREATE UNIQUE INDEX inbox_id ON outlast.inbox USING btree (run, id)

CREATE UNIQUE INDEX inbox_pkey ON outlast.inbox USING btree (run, "position")

CREATE UNIQUE INDEX leftovers_pkey ON outlast.leftovers USING btree (run)

CREATE UNIQUE INDEX migrations_pkey ON outlast.migrations USING btree (version)

CREATE INDEX runs_by_parent ON outlast.runs USING btree (parent, id) WHERE (parent IS NOT NULL)

CREATE INDEX runs_by_root ON outlast.runs USING btree (root, id) WHERE (root IS NOT NULL)

CREATE INDEX runs_by_status ON outlast.runs USING btree (status, id)

CREATE INDEX runs_by_workflow ON outlast.runs USING btree (workflow, id)

CREATE INDEX runs_codeless ON outlast.runs USING btree (ready_at, id) WHERE ((ready_at IS NOT NULL) AND (codeless > 0))

CREATE INDEX runs_held ON outlast.runs USING btree (owner, id) WHERE (owner IS NOT NULL)

CREATE UNIQUE INDEX runs_key ON outlast.runs USING btree (key) WHERE (key IS NOT NULL)

CREATE INDEX runs_overdue ON outlast.runs USING btree (deadline, id) WHERE ((deadline IS NOT NULL) AND (owner IS NULL))

CREATE UNIQUE INDEX runs_pkey ON outlast.runs USING btree (id)

CREATE INDEX runs_ready ON outlast.runs USING btree (queue, workflow, version, format, COALESCE(barred_build, ''::text), priority, ready_at, id) WHERE ((ready_at IS NOT NULL) AND (crashes < 2) AND (codeless = 0))

CREATE INDEX runs_stuck ON outlast.runs USING btree (workflow, version, barred_build) WHERE ((status = 'stuck'::text) AND (ready_at IS NULL))

CREATE INDEX runs_suspects ON outlast.runs USING btree (queue, workflow, version, format, COALESCE(barred_build, ''::text), priority, ready_at, id) WHERE ((ready_at IS NOT NULL) AND (crashes >= 2) AND (codeless = 0))

CREATE INDEX runs_unread ON outlast.runs USING btree (owner, id) WHERE ((owner IS NOT NULL) AND (sent > consumed))

CREATE UNIQUE INDEX sessions_pkey ON outlast.sessions USING btree (id)

CREATE UNIQUE INDEX settings_pkey ON outlast.settings USING btree (one)

CREATE UNIQUE INDEX skew_pkey ON outlast.skew USING btree (one)

CREATE INDEX tags_by_value ON outlast.tags USING btree (name, value, run)

CREATE UNIQUE INDEX tags_pkey ON outlast.tags USING btree (run, name)

CREATE UNIQUE INDEX turns_pkey ON outlast.turns USING btree (run, seq)

view events:  SELECT turns.run,
    ((turns.seq + event.nth) - 1) AS seq,
    turns.at,
    (event.value ->> 'kind'::text) AS kind,
    ((event.value ->> 'op'::text))::bigint AS op,
    event.value AS body
   FROM outlast.turns,
    LATERAL json_array_elements((replace(turns.events, '\u0000'::text, '\ufffd'::text))::json) WITH ORDINALITY event(value, nth);

CREATE OR REPLACE FUNCTION outlast.base32(bits_ numeric)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
DECLARE
    digits_ text := '';
BEGIN
    FOR nth_ IN 1..26 LOOP
        digits_ := substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (bits_ % 32)::integer + 1, 1) || digits_;
        bits_ := div(bits_, 32);
    END LOOP;
    RETURN digits_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.beat(at_ bigint, id_ text, report_ text)
 RETURNS TABLE(held bigint, moment bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
BEGIN
    UPDATE "outlast".sessions s SET beat_at = now_, boot = "outlast".boot(), suspect_since = NULL,
        expires_at = least(now_, 9223372036854775807 - s.time) + s.time, report = report_
    WHERE s.id = id_;
    IF FOUND THEN
        RETURN QUERY SELECT count(*), now_ FROM "outlast".runs r WHERE r.owner = id_;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.boot()
 RETURNS bigint
 LANGUAGE sql
AS $function$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + clock_offset FROM "outlast".settings
$function$

CREATE OR REPLACE FUNCTION outlast.check_payload(payload_ text)
 RETURNS void
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
DECLARE
    brackets_ text;
    depth_ integer := 0;
BEGIN
    IF octet_length(payload_) > 4194304 THEN
        RAISE EXCEPTION 'the payload has % bytes, more than 4194304', octet_length(payload_)
            USING ERRCODE = '54000', HINT = 'store it elsewhere and pass its address';
    END IF;
    brackets_ := regexp_replace(regexp_replace(payload_, '"(\\.|[^"\\])*"', '', 'g'), '[^][{}]', '', 'g');
    IF length(brackets_) > 2 * 64 THEN
        FOR nth_ IN 1..length(brackets_) LOOP
            depth_ := depth_ + CASE WHEN substr(brackets_, nth_, 1) IN ('[', '{') THEN 1 ELSE -1 END;
            IF depth_ > 64 THEN
                RAISE EXCEPTION 'the payload is nested deeper than 64 levels'
                    USING ERRCODE = '54000', HINT = 'flatten it, or pass it as a text';
            END IF;
        END LOOP;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.choose(session_ text, now_ bigint, limit_ integer, suspect_ boolean, preference_ bigint, lines_ outlast.line[], has_codeless_ boolean, OUT ids text[], OUT has_suspect boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    line_ "outlast".line;
    found_ record;
    ranks_ bigint[] := '{}';
    suspect_id_ text;
    suspect_rank_ bigint;
    is_sorted_ boolean := true;
BEGIN
    ids := '{}';
    FOREACH line_ IN ARRAY lines_ LOOP
        CONTINUE WHEN line_.head > now_;
        found_ := "outlast".ready(session_, now_, limit_, preference_, line_);
        CONTINUE WHEN found_.ids IS NULL;
        IF NOT line_.is_suspect THEN
            is_sorted_ := cardinality(ids) = 0;
            ids := ids || found_.ids; ranks_ := ranks_ || found_.ranks;
        ELSIF suspect_id_ IS NULL OR (found_.ranks[1], found_.ids[1] COLLATE "C") < (suspect_rank_, suspect_id_) THEN
            suspect_id_ := found_.ids[1]; suspect_rank_ := found_.ranks[1];
        END IF;
    END LOOP;
    IF has_codeless_ THEN
        FOR found_ IN
            SELECT r.id::text, r.ready_at, r.crashes >= 2 AS is_suspect FROM "outlast".runs r
            WHERE r.codeless > 0 AND r.ready_at IS NOT NULL AND (suspect_ OR r.crashes < 2) AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED
        LOOP
            is_sorted_ := false;
            IF NOT found_.is_suspect THEN
                ids := array_append(ids, found_.id); ranks_ := array_append(ranks_, found_.ready_at);
            ELSIF suspect_id_ IS NULL OR (found_.ready_at, found_.id COLLATE "C") < (suspect_rank_, suspect_id_) THEN
                suspect_id_ := found_.id; suspect_rank_ := found_.ready_at;
            END IF;
        END LOOP;
    END IF;
    IF suspect_id_ IS NOT NULL THEN
        is_sorted_ := false;
        ids := array_append(ids, suspect_id_); ranks_ := array_append(ranks_, suspect_rank_);
    END IF;
    IF NOT is_sorted_ THEN
        SELECT coalesce(array_agg(c.id ORDER BY c.rank, c.id COLLATE "C"), '{}') INTO ids FROM (
            SELECT u.id, u.rank FROM unnest(ids, ranks_) AS u (id, rank) ORDER BY u.rank, u.id COLLATE "C" LIMIT limit_) c;
    END IF;
    has_suspect := coalesce(suspect_id_ = ANY (ids), false);
END
$function$

CREATE OR REPLACE FUNCTION outlast.choose_overdue(until_ bigint, limit_ integer, suspect_ boolean, chosen_ text[], OUT ids text[], OUT has_suspect boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    late_ record;
BEGIN
    ids := chosen_; has_suspect := false;
    FOR late_ IN
        SELECT r.id, r.crashes >= 2 AS is_suspect FROM "outlast".runs r
        WHERE r.deadline <= until_ AND r.owner IS NULL AND r.id <> ALL (chosen_) AND (r.crashes < 2 OR suspect_)
        ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN late_.is_suspect AND has_suspect;
        has_suspect := has_suspect OR late_.is_suspect;
        ids := array_append(ids, late_.id);
        EXIT WHEN cardinality(ids) >= limit_;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.claim(session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, suspect_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint, first_build text, first_events text)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
    lines_ "outlast".line[] := "outlast".lines(queues_, workflows_, versions_, build_, format_, false);
    has_codeless_ boolean;
    has_unread_ boolean;
    has_suspects_ boolean;
    has_ready_ boolean;
    has_overdue_ boolean;
    chosen_ record;
    late_ record;
    line_ "outlast".line;
    ids_ text[] := '{}';
    ready_ integer := 0;
    deadline_ bigint;
    due_ bigint;
    status_ text;
BEGIN
    -- Each in the order of its index: without, a database that has not analysed the table may read all of it.
    SELECT (SELECT r.ready_at FROM "outlast".runs r WHERE r.ready_at IS NOT NULL AND r.codeless > 0
            ORDER BY r.ready_at, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.id FROM "outlast".runs r WHERE r.owner = session_ AND r.sent > r.consumed
            ORDER BY r.owner, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.deadline FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline IS NOT NULL
            ORDER BY r.deadline LIMIT 1),
        suspect_ AND (SELECT r.ready_at FROM "outlast".runs r
            WHERE r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
            ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority, r.ready_at, r.id
            LIMIT 1) IS NOT NULL
    INTO has_codeless_, has_unread_, deadline_, has_suspects_;
    IF has_suspects_ THEN
        lines_ := lines_ || "outlast".lines(queues_, workflows_, versions_, build_, format_, true);
    END IF;
    has_overdue_ := coalesce(deadline_ <= now_ - grace_ AND overdue_from_ <= now_, false);
    has_ready_ := has_codeless_ OR has_overdue_;
    FOREACH line_ IN ARRAY lines_ LOOP
        EXIT WHEN has_ready_;
        has_ready_ := line_.head <= now_;
    END LOOP;
    IF has_ready_ AND limit_ > 0 THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF has_ready_ AND limit_ > 0 THEN
        chosen_ := "outlast".choose(session_, now_, limit_, suspect_, preference_, lines_, has_codeless_);
        ids_ := chosen_.ids;
        ready_ := cardinality(ids_);
        suspect_ := suspect_ AND NOT chosen_.has_suspect;
        IF has_overdue_ AND ready_ < limit_ THEN
            late_ := "outlast".choose_overdue(now_ - grace_, limit_, suspect_, ids_);
            ids_ := late_.ids;
            suspect_ := suspect_ AND NOT late_.has_suspect;
        END IF;
        IF cardinality(ids_) = 1 THEN
            -- One alone is quicker without what is done for many.
            SELECT r.status INTO status_ FROM "outlast".runs r WHERE r.id = ids_[1];
            UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                waits = '[]', ready_at = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
            WHERE r.id = ids_[1]
            RETURNING r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, r.crashes,
                r.deadline
            INTO run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, deadline;
            PERFORM "outlast".count_move(status_, 'running');
            IF seq = 1 THEN
                -- Nothing is done for a run that had no turn before its first is on disk, and this with it. A server
                -- that crashes before that may forget that the run was given.
                PERFORM set_config('synchronous_commit', 'off', true);
                SELECT t.build, t.events INTO first_build, first_events
                FROM "outlast".turns t WHERE t.run = ids_[1] AND t.seq = 0;
            END IF;
            code := 'given'; is_overdue := ready_ = 0;
            RETURN NEXT;
            run := NULL;
        ELSIF cardinality(ids_) > 1 THEN
            RETURN QUERY SELECT g.* FROM "outlast".give(session_, now_, ids_, ready_) g;
        END IF;
    END IF;
    IF cardinality(lines_) > 0 OR has_codeless_ THEN
        due_ := "outlast".next_due_of(session_, now_, limit_ > ready_, suspect_, preference_, lines_, has_codeless_);
    END IF;
    IF has_overdue_ AND cardinality(ids_) < limit_ THEN
        -- One that is left has somebody else locked, who will let go of it.
        PERFORM 1 FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline <= now_ - grace_ AND (r.crashes < 2 OR suspect_)
        ORDER BY r.deadline LIMIT 1;
        IF FOUND THEN
            due_ := least(due_, now_ + 5000);
        END IF;
    END IF;
    IF deadline_ IS NOT NULL AND (has_overdue_ OR ready_ > 0) THEN
        SELECT r.deadline INTO deadline_ FROM "outlast".runs r WHERE r.owner IS NULL
            AND r.deadline > CASE WHEN overdue_from_ <= now_ THEN now_ - grace_ ELSE -9223372036854775808 END
        ORDER BY r.deadline LIMIT 1;
    END IF;
    code := 'now'; deadline := deadline_; is_overdue := has_unread_; moment := now_; next_due := due_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.claim_one(session_ text, at_ bigint, run_ text, queues_ text[], workflows_ text[], versions_ bigint[], format_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint, first_build text, first_events text)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ AND r.status = 'pending' AND r.ready_at <= now_
        AND r.queue = ANY (queues_) AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
            WHERE c.workflow = r.workflow AND c.version = r.version);
    IF FOUND THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    ELSE
        -- Others were quicker, or it is for others. As in `claim`, who gets nothing writes nothing.
        run_ := NULL;
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF run_ IS NOT NULL THEN
        SELECT r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, r.crashes, r.deadline
        INTO run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, deadline
        FROM "outlast".runs r
        WHERE r.id = run_ AND r.status = 'pending' AND r.owner IS NULL AND r.next_seq = 1 AND r.ready_at <= now_
            AND r.crashes < 2 AND r.codeless = 0 AND r.barred_build IS NULL AND r.queue = ANY (queues_)
            AND r.format <= format_
            AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
                WHERE c.workflow = r.workflow AND c.version = r.version)
        FOR NO KEY UPDATE SKIP LOCKED;
        -- Nothing is done for a run that had no turn before its first is on disk, and this with it. A server that
        -- crashes before that may forget that the run was given.
        PERFORM set_config('synchronous_commit', 'off', true);
        IF run IS NULL THEN
            -- Whoever has it locked may let go of it.
            next_due := now_ + 5000;
        ELSE
            UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                ready_at = NULL
            WHERE r.id = run_;
            PERFORM "outlast".count_move('pending', 'running');
            SELECT t.build, t.events INTO first_build, first_events
            FROM "outlast".turns t WHERE t.run = run_ AND t.seq = 0;
            code := 'given'; is_overdue := false;
            RETURN NEXT;
        END IF;
    END IF;
    code := 'now'; run := NULL; deadline := NULL; is_overdue := false; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.clock()
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT s.clock_offset FROM "outlast".settings s);
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit(session_ text, at_ bigint, exclusive_ boolean, locked_ text[], run_ text[], id_ text[], from_ text[], seq_ bigint[], next_seq_ bigint[], turn_at_ bigint[], build_ text[], events_ text[], consumed_ bigint[], fired_until_ bigint[], then_ text[], writes_ boolean[], clears_deadline_ boolean[], invalid_ boolean[], wake_at_ bigint[], waits_ text[], stuck_reason_ text[], stuck_message_ text[], stuck_build_ text[], format_ integer, born_ bigint[], workflow_ text[], version_ bigint[], queue_ text[], priority_ smallint[], parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[], root_ text[], deadline_ bigint[], counts_ boolean)
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean, statuses text[], changes bigint[])
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint;
    statuses_ text[];
    changes_ bigint[];
    answers_ record;
BEGIN
    IF exclusive_ THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF cardinality(locked_) > 0 THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (locked_) ORDER BY r.id FOR NO KEY UPDATE;
    END IF;
    now_ := coalesce(at_, "outlast".clock());
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
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, owner, preferred, turn,
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
                    WHEN tip.turn = a.id AND EXISTS (SELECT 1 FROM "outlast".turns f
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
            WHEN a.fired_until IS NOT NULL AND EXISTS (SELECT 1 FROM "outlast".inbox i
                WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired_until) THEN 'missed'
            ELSE 'ok' END AS code
        FROM asked a
        LEFT JOIN "outlast".runs r ON r.id = a.run
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = a.run
            ORDER BY t.seq DESC LIMIT 1) last ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), added AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT j.run, j.seq, j.next_seq, j.id, j.turn_at, j.build, j.events
        FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), written AS (
        UPDATE "outlast".runs r SET
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
                    (j.next_seq = 1 OR EXISTS (SELECT 1 FROM "outlast".inbox i WHERE i.run = j.run
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
                ELSE (SELECT coalesce(max(i.position), 0) FROM "outlast".inbox i WHERE i.run = j.run AND i.kind = 'terminate'
                    AND i.position > CASE WHEN j."then" = 'stuck' THEN r.consumed ELSE j.consumed END) END,
            stuck_reason = j.stuck_reason, stuck_message = j.stuck_message, stuck_build = j.stuck_build,
            barred_build = coalesce(j.stuck_build, r.barred_build)
        FROM judged j
        WHERE r.id = j.run AND j.code = 'ok' AND j."from" IS NOT NULL AND (j.writes OR j.consumed > j.had_consumed)
        RETURNING r.id, r.owner, r.status, r.ready_at, r.deadline
    ), blanked AS (
        UPDATE "outlast".inbox i SET body = NULL, raw = NULL, headers = NULL
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
        PERFORM "outlast".widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(born_) AS b (born);
    END IF;
    IF answers_.statuses IS NOT NULL AND counts_ THEN
        PERFORM "outlast".count(answers_.statuses, answers_.changes);
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
$function$

CREATE OR REPLACE FUNCTION outlast.commit_beyond(session_ text, at_ bigint, exclusive_ boolean, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint, build_ text, events_ text, consumed_ bigint, fired_until_ bigint, then_ text, clears_deadline_ boolean, invalid_ boolean, wake_at_ bigint, waits_ text, stuck_reason_ text, stuck_message_ text, stuck_build_ text, format_ integer, born_ bigint, workflow_ text, version_ bigint, queue_ text, priority_ smallint, key_ text, digest_ text, window_ bigint, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text, deadline_ bigint, tag_name_ text[], tag_value_ text[], child_run_ text[], child_turn_ text[], child_born_ bigint[], child_workflow_ text[], child_version_ bigint[], child_queue_ text[], child_priority_ smallint[], child_key_ text[], child_digest_ text[], child_window_ bigint[], child_events_ text[], child_op_ bigint[], child_awaits_ boolean[], child_root_ text[], child_parent_ text[], child_not_before_ bigint[], child_deadline_ bigint[], child_tag_of_ integer[], child_tag_name_ text[], child_tag_value_ text[], child_answer_ text[], child_asks_ boolean[], told_refused_ text[], told_other_ text[], told_taken_ text[], told_foreign_ text[], mark_run_ text, mark_workflow_ text, message_run_ text[], message_id_ text[], message_kind_ text[], message_name_ text[], message_op_ bigint[], message_outcome_ text[], message_codec_ text[], message_body_ text[], message_raw_ bytea[], message_headers_ text[], message_limit_ bigint[], message_codeless_ text[], is_put_ boolean, put_code_ text[], put_run_ text[], put_workflow_ text[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean, statuses text[], changes bigint[], births bigint[])
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint;
    put_ record;
    judged_ record;
    asked_from_ text := from_;
    answer_ record;
    reaches_ boolean := true;
    statuses_ text[] := '{}';
    born_here_ bigint[] := '{}';
BEGIN
    IF exclusive_ THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (array_append(message_run_, run_)) ORDER BY r.id FOR NO KEY UPDATE;
    now_ := coalesce(at_, "outlast".clock());
    nth := 1;
    IF from_ IS NULL THEN
        IF invalid_ THEN
            code := 'invalid';
            RETURN NEXT;
            RETURN;
        END IF;
        IF is_put_ THEN
            SELECT 'new' AS code, run_ AS run, NULL::text AS workflow INTO put_;
        ELSE
            put_ := "outlast".put_held(session_, now_, format_, run_, turn_at_, workflow_, version_, queue_, priority_, key_,
                digest_, window_, parent_, parent_op_, parent_awaits_, root_, deadline_, tag_name_, tag_value_);
            IF put_.code = 'new' THEN
                statuses_ := array_append(statuses_, 'running');
                born_here_ := array_append(born_here_, born_);
            END IF;
        END IF;
        asked_from_ := '';
        IF put_.code = 'same' THEN
            SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END = id_ AND first.build = build_
            AS is_repeat INTO judged_
            FROM "outlast".runs r JOIN "outlast".turns first ON first.run = r.id AND first.seq = 0
            JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
            ON true WHERE r.id = run_;
            code := CASE WHEN judged_.is_repeat THEN 'done' ELSE 'existed' END;
            RETURN NEXT;
            RETURN;
        ELSIF put_.code <> 'new' THEN
            code := put_.code; detail := put_.run || ' ' || put_.workflow;
            RETURN NEXT;
            RETURN;
        END IF;
    ELSE
        SELECT r.owner, r.sent, r.consumed, CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq INTO judged_
        FROM "outlast".runs r
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true WHERE r.id = run_;
        IF NOT FOUND OR judged_.turn = id_ OR judged_.owner IS DISTINCT FROM session_ OR judged_.turn <> from_
            OR judged_.seq <> seq_ OR invalid_ OR consumed_ < judged_.consumed OR consumed_ > judged_.sent
            OR fired_until_ IS NOT NULL AND EXISTS (SELECT 1 FROM "outlast".inbox i
                WHERE i.run = run_ AND i.position > consumed_ AND i.at <= fired_until_) THEN
            -- Refused, or done before: the commit below says which.
            reaches_ := false;
        ELSE
            PERFORM "outlast".put_tags(run_, tag_name_, tag_value_);
        END IF;
    END IF;
    IF NOT reaches_ AND EXISTS (SELECT 1 FROM unnest(put_code_) AS p (code) WHERE p.code IS NOT NULL) THEN
        RAISE EXCEPTION 'turn % was overtaken', id_ USING ERRCODE = '40001';
    END IF;
    IF reaches_ THEN
        FOR i IN 1..cardinality(child_run_) LOOP
            put_ := NULL;
            IF put_code_[i] IS NOT NULL THEN
                SELECT put_code_[i] AS code, put_run_[i] AS run, put_workflow_[i] AS workflow INTO put_;
            ELSIF told_refused_[i] IS NULL THEN
                put_ := "outlast".put_start(now_, format_, child_run_[i], child_turn_[i], child_workflow_[i],
                    child_version_[i], child_queue_[i], child_priority_[i], child_key_[i], child_digest_[i],
                    child_window_[i], child_events_[i], child_parent_[i], child_op_[i], child_awaits_[i],
                    child_root_[i], child_not_before_[i], child_deadline_[i],
                    ARRAY(SELECT t.name FROM unnest(child_tag_of_, child_tag_name_) AS t (of, name) WHERE t.of = i),
                    ARRAY(SELECT t.value FROM unnest(child_tag_of_, child_tag_value_) AS t (of, value) WHERE t.of = i));
                IF put_.code = 'new' THEN
                    statuses_ := array_append(statuses_, 'pending');
                    born_here_ := array_append(born_here_, child_born_[i]);
                END IF;
            END IF;
            CONTINUE WHEN then_ IN ('completed', 'failed', 'cancelled');
            IF told_refused_[i] IS NOT NULL THEN
                PERFORM "outlast".put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    told_refused_[i], NULL, NULL, 9223372036854775807, 'never');
            ELSIF put_.code = 'taken' THEN
                PERFORM "outlast".put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    replace(replace(CASE WHEN put_.workflow = child_workflow_[i] THEN told_taken_[i] ELSE told_foreign_[i] END,
                        mark_run_, put_.run), mark_workflow_, btrim(to_json(put_.workflow)::text, '"')),
                    NULL, NULL, 9223372036854775807, 'never');
            ELSIF child_asks_[i] THEN
                PERFORM "outlast".put_message(run_, child_answer_[i], now_, 'child_started', NULL, child_op_[i], NULL, NULL,
                    put_.run, NULL, NULL, 9223372036854775807, 'never');
            ELSIF put_.code = 'other' THEN
                PERFORM "outlast".put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    replace(told_other_[i], mark_run_, put_.run), NULL, NULL, 9223372036854775807, 'never');
            END IF;
        END LOOP;
        FOR i IN 1..cardinality(message_run_) LOOP
            PERFORM "outlast".put_message(message_run_[i], message_id_[i], now_, message_kind_[i], message_name_[i],
                message_op_[i], message_outcome_[i], message_codec_[i], message_body_[i], message_raw_[i],
                message_headers_[i], message_limit_[i], message_codeless_[i]);
        END LOOP;
    END IF;
    FOR answer_ IN SELECT * FROM "outlast".commit(session_, now_, exclusive_, ARRAY[run_], ARRAY[run_], ARRAY[id_],
        ARRAY[asked_from_], ARRAY[seq_], ARRAY[next_seq_], ARRAY[turn_at_], ARRAY[build_], ARRAY[events_],
        ARRAY[consumed_], ARRAY[CASE WHEN reaches_ THEN NULL ELSE fired_until_ END], ARRAY[then_], ARRAY[true],
        ARRAY[clears_deadline_], ARRAY[invalid_], ARRAY[wake_at_], ARRAY[waits_], ARRAY[stuck_reason_],
        ARRAY[stuck_message_], ARRAY[stuck_build_], format_, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', false)
    LOOP
        IF reaches_ AND answer_.code <> 'now' THEN
            RAISE EXCEPTION 'turn % was overtaken', id_ USING ERRCODE = '40001';
        END IF;
        nth := answer_.nth; code := answer_.code; detail := answer_.detail; moment := answer_.moment;
        rings := answer_.rings; statuses := statuses_ || answer_.statuses;
        changes := array_fill(1::bigint, ARRAY[cardinality(statuses_)]) || answer_.changes; births := born_here_;
        RETURN NEXT;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_each(session_ text, at_ bigint, exclusive_ boolean, run_ text[], id_ text[], from_ text[], seq_ bigint[], next_seq_ bigint[], turn_at_ bigint[], build_ text[], events_ text[], consumed_ bigint[], fired_until_ bigint[], then_ text[], clears_deadline_ boolean[], invalid_ boolean[], wake_at_ bigint[], waits_ text[], stuck_reason_ text[], stuck_message_ text[], stuck_build_ text[], format_ integer, born_ bigint[], workflow_ text[], version_ bigint[], queue_ text[], priority_ smallint[], key_ text[], digest_ text[], window_ bigint[], parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[], root_ text[], deadline_ bigint[], tag_name_ text[], tag_value_ text[], child_run_ text[], child_turn_ text[], child_born_ bigint[], child_workflow_ text[], child_version_ bigint[], child_queue_ text[], child_priority_ smallint[], child_key_ text[], child_digest_ text[], child_window_ bigint[], child_events_ text[], child_op_ bigint[], child_awaits_ boolean[], child_root_ text[], child_parent_ text[], child_not_before_ bigint[], child_deadline_ bigint[], child_tag_of_ integer[], child_tag_name_ text[], child_tag_value_ text[], child_answer_ text[], child_asks_ boolean[], told_refused_ text[], told_other_ text[], told_taken_ text[], told_foreign_ text[], mark_run_ text, mark_workflow_ text, message_run_ text[], message_id_ text[], message_kind_ text[], message_name_ text[], message_op_ bigint[], message_outcome_ text[], message_codec_ text[], message_body_ text[], message_raw_ bytea[], message_headers_ text[], message_limit_ bigint[], message_codeless_ text[], tags_ integer[], children_ integer[], child_tags_ integer[], messages_ integer[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint;
    tag_from_ integer; tag_until_ integer := 0;
    child_from_ integer; child_until_ integer := 0;
    child_tag_from_ integer; child_tag_until_ integer := 0;
    message_from_ integer; message_until_ integer := 0;
    keyed_ record;
    put_ record;
    is_put_ boolean[] := array_fill(false, ARRAY[cardinality(run_)]);
    put_code_ text[] := array_fill(NULL::text, ARRAY[cardinality(child_run_)]);
    put_run_ text[] := put_code_;
    put_workflow_ text[] := put_code_;
    answer_ record;
    statuses_ text[] := '{}';
    changes_ bigint[] := '{}';
    new_born_ bigint[] := '{}';
BEGIN
    IF exclusive_ THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (run_ || message_run_) ORDER BY r.id FOR NO KEY UPDATE;
    now_ := coalesce(at_, "outlast".clock());
    IF cardinality(array_remove(key_, NULL)) + cardinality(array_remove(child_key_, NULL)) > 0 THEN
        FOR keyed_ IN
            WITH fit AS (
                SELECT a.k, a.key FROM unnest(run_, id_, from_, seq_, consumed_, fired_until_, invalid_, key_) WITH ORDINALITY
                    AS a (run, id, "from", seq, consumed, fired_until, invalid, key, k)
                LEFT JOIN "outlast".runs r ON r.id = a.run
                LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = a.run
                    ORDER BY t.seq DESC LIMIT 1) last ON true
                WHERE NOT a.invalid AND CASE WHEN a."from" IS NULL THEN
                    r.id IS NULL AND NOT EXISTS (SELECT 1 FROM "outlast".runs o WHERE o.key = a.key)
                    -- Nor has another of these turns the key.
                    AND (a.key IS NULL OR 1 = (SELECT count(*) FROM unnest(key_ || child_key_) AS o (key) WHERE o.key = a.key))
                ELSE r.owner = session_ AND greatest(last.next_seq, r.next_seq) = a.seq
                    AND CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END = a."from"
                    AND a.consumed BETWEEN r.consumed AND r.sent
                    AND (a.fired_until IS NULL OR a.run <> ALL (message_run_) AND NOT EXISTS (SELECT 1 FROM "outlast".inbox i
                        WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired_until)) END
            ), parts AS (
                SELECT p.k, (sum(p.tags) OVER w - p.tags)::integer AS tag_from, p.tags,
                    (sum(p.children) OVER w - p.children)::integer AS child_from, p.children,
                    (sum(p.child_tags) OVER w - p.child_tags)::integer AS child_tag_from, p.child_tags
                FROM unnest(tags_, children_, child_tags_) WITH ORDINALITY AS p (tags, children, child_tags, k)
                WINDOW w AS (ORDER BY p.k)
            )
            SELECT * FROM (
                SELECT f.key, f.k::integer AS turn, 0 AS child, 0 AS of, p.tag_from + 1 AS tag_from, p.tag_from + p.tags AS tag_until
                FROM fit f JOIN parts p ON p.k = f.k WHERE f.key IS NOT NULL
                UNION ALL
                SELECT child_key_[p.child_from + n.of], f.k::integer, p.child_from + n.of, n.of, p.child_tag_from + 1,
                    p.child_tag_from + p.child_tags
                FROM fit f JOIN parts p ON p.k = f.k CROSS JOIN LATERAL generate_series(1, p.children) AS n (of)
                WHERE child_key_[p.child_from + n.of] IS NOT NULL AND told_refused_[p.child_from + n.of] IS NULL
            ) keyed ORDER BY keyed.key COLLATE "C", keyed.turn, keyed.child
        LOOP
            child_from_ := keyed_.child;
            IF child_from_ > 0 THEN
                put_ := "outlast".put_start(now_, format_, child_run_[child_from_], child_turn_[child_from_],
                    child_workflow_[child_from_], child_version_[child_from_], child_queue_[child_from_],
                    child_priority_[child_from_], child_key_[child_from_], child_digest_[child_from_],
                    child_window_[child_from_], child_events_[child_from_], child_parent_[child_from_],
                    child_op_[child_from_], child_awaits_[child_from_], child_root_[child_from_],
                    child_not_before_[child_from_], child_deadline_[child_from_],
                    ARRAY(SELECT t.name FROM unnest(child_tag_of_[keyed_.tag_from:keyed_.tag_until],
                        child_tag_name_[keyed_.tag_from:keyed_.tag_until]) AS t (of, name) WHERE t.of = keyed_.of),
                    ARRAY(SELECT t.value FROM unnest(child_tag_of_[keyed_.tag_from:keyed_.tag_until],
                        child_tag_value_[keyed_.tag_from:keyed_.tag_until]) AS t (of, value) WHERE t.of = keyed_.of));
                put_code_[child_from_] := put_.code; put_run_[child_from_] := put_.run;
                put_workflow_[child_from_] := put_.workflow;
                IF put_.code = 'new' THEN
                    statuses_ := array_append(statuses_, 'pending'); changes_ := array_append(changes_, 1::bigint);
                    new_born_ := array_append(new_born_, child_born_[child_from_]);
                END IF;
            ELSE
                put_ := "outlast".put_held(session_, now_, format_, run_[keyed_.turn], turn_at_[keyed_.turn],
                    workflow_[keyed_.turn], version_[keyed_.turn], queue_[keyed_.turn], priority_[keyed_.turn],
                    key_[keyed_.turn], digest_[keyed_.turn], window_[keyed_.turn], parent_[keyed_.turn],
                    parent_op_[keyed_.turn], parent_awaits_[keyed_.turn], root_[keyed_.turn], deadline_[keyed_.turn],
                    tag_name_[keyed_.tag_from:keyed_.tag_until], tag_value_[keyed_.tag_from:keyed_.tag_until]);
                IF put_.code <> 'new' THEN
                    -- It was not there a moment ago. The next try sees it.
                    RAISE EXCEPTION 'another start with the key was faster' USING ERRCODE = '40001';
                END IF;
                is_put_[keyed_.turn] := true;
                statuses_ := array_append(statuses_, 'running'); changes_ := array_append(changes_, 1::bigint);
                new_born_ := array_append(new_born_, born_[keyed_.turn]);
            END IF;
        END LOOP;
    END IF;
    FOR k IN 1..cardinality(run_) LOOP
        tag_from_ := tag_until_ + 1; tag_until_ := tag_until_ + tags_[k];
        child_from_ := child_until_ + 1; child_until_ := child_until_ + children_[k];
        child_tag_from_ := child_tag_until_ + 1; child_tag_until_ := child_tag_until_ + child_tags_[k];
        message_from_ := message_until_ + 1; message_until_ := message_until_ + messages_[k];
        FOR answer_ IN SELECT * FROM "outlast".commit_beyond(
            session_, now_, exclusive_, run_[k], id_[k], from_[k], seq_[k], next_seq_[k], turn_at_[k],
            build_[k], events_[k], consumed_[k], fired_until_[k], then_[k], clears_deadline_[k], invalid_[k],
            wake_at_[k], waits_[k], stuck_reason_[k], stuck_message_[k], stuck_build_[k], format_, born_[k],
            workflow_[k], version_[k], queue_[k], priority_[k], key_[k], digest_[k], window_[k], parent_[k],
            parent_op_[k], parent_awaits_[k], root_[k], deadline_[k], tag_name_[tag_from_:tag_until_],
            tag_value_[tag_from_:tag_until_], child_run_[child_from_:child_until_],
            child_turn_[child_from_:child_until_], child_born_[child_from_:child_until_],
            child_workflow_[child_from_:child_until_], child_version_[child_from_:child_until_],
            child_queue_[child_from_:child_until_], child_priority_[child_from_:child_until_],
            child_key_[child_from_:child_until_], child_digest_[child_from_:child_until_],
            child_window_[child_from_:child_until_], child_events_[child_from_:child_until_],
            child_op_[child_from_:child_until_], child_awaits_[child_from_:child_until_],
            child_root_[child_from_:child_until_], child_parent_[child_from_:child_until_],
            child_not_before_[child_from_:child_until_], child_deadline_[child_from_:child_until_],
            child_tag_of_[child_tag_from_:child_tag_until_],
            child_tag_name_[child_tag_from_:child_tag_until_],
            child_tag_value_[child_tag_from_:child_tag_until_], child_answer_[child_from_:child_until_],
            child_asks_[child_from_:child_until_], told_refused_[child_from_:child_until_],
            told_other_[child_from_:child_until_], told_taken_[child_from_:child_until_],
            told_foreign_[child_from_:child_until_], mark_run_, mark_workflow_,
            message_run_[message_from_:message_until_], message_id_[message_from_:message_until_],
            message_kind_[message_from_:message_until_], message_name_[message_from_:message_until_],
            message_op_[message_from_:message_until_], message_outcome_[message_from_:message_until_],
            message_codec_[message_from_:message_until_], message_body_[message_from_:message_until_],
            message_raw_[message_from_:message_until_], message_headers_[message_from_:message_until_],
            message_limit_[message_from_:message_until_], message_codeless_[message_from_:message_until_],
            is_put_[k], put_code_[child_from_:child_until_], put_run_[child_from_:child_until_],
            put_workflow_[child_from_:child_until_])
        LOOP
            nth := CASE WHEN answer_.nth = 0 THEN 0 ELSE k END; code := answer_.code; detail := answer_.detail;
            moment := answer_.moment; rings := answer_.rings;
            statuses_ := statuses_ || answer_.statuses; changes_ := changes_ || answer_.changes;
            new_born_ := new_born_ || answer_.births;
            RETURN NEXT;
        END LOOP;
    END LOOP;
    -- Once and at the end, in one order: others wait for these rows too, and have turns of other kinds before theirs.
    IF cardinality(new_born_) > 0 THEN
        PERFORM "outlast".widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(new_born_) AS b (born);
    END IF;
    IF cardinality(statuses_) > 0 THEN
        PERFORM "outlast".count(statuses_, changes_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_one(session_ text, at_ bigint, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint, build_ text, events_ text, consumed_ bigint, then_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := 0;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF then_ <> 'hold' THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    END IF;
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    SELECT run_, seq_, next_seq_, id_, turn_at_, build_, events_
    FROM "outlast".runs r
    LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = r.id
        ORDER BY t.seq DESC LIMIT 1) last ON true
    WHERE r.id = run_ AND r.owner = session_ AND r.consumed = consumed_
        AND CASE WHEN last.next_seq > r.next_seq THEN last.id = from_ AND last.next_seq = seq_
            ELSE r.turn = from_ AND r.next_seq = seq_ END
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF then_ <> 'hold' THEN
        now_ := coalesce(at_, "outlast".clock());
        UPDATE "outlast".runs r SET status = then_, owner = NULL, preferred = NULL, turn = id_, next_seq = next_seq_,
            turn_at = turn_at_, updated_at = now_, ended_at = now_, wake_at = NULL, waits = '[]', ready_at = NULL,
            crashes = 0, deadline = NULL, codeless = 0, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
        WHERE r.id = run_;
        PERFORM "outlast".count_move('running', then_);
    END IF;
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.compact(value_ jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE STRICT
AS $function$
    SELECT regexp_replace(value_::text, '("(?:\\.|[^"\\])*")|\s+', '\1', 'g')
$function$

CREATE OR REPLACE FUNCTION outlast.count(statuses_ text[], changes_ bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO "outlast".counts AS counts (status, slot, n)
    SELECT moved.status, (pg_backend_pid() % 64)::smallint, sum(moved.change)
    FROM unnest(statuses_, changes_) AS moved (status, change)
    GROUP BY moved.status HAVING sum(moved.change) <> 0 ORDER BY moved.status
    ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
END
$function$

CREATE OR REPLACE FUNCTION outlast.count_move(from_ text, to_ text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    slot_ CONSTANT smallint := (pg_backend_pid() % 64)::smallint;
BEGIN
    IF from_ IS NULL THEN
        INSERT INTO "outlast".counts AS counts (status, slot, n) VALUES (to_, slot_, 1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + 1;
    ELSIF from_ COLLATE "C" < to_ THEN
        INSERT INTO "outlast".counts AS counts (status, slot, n) VALUES (from_, slot_, -1), (to_, slot_, 1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
    ELSE
        INSERT INTO "outlast".counts AS counts (status, slot, n) VALUES (to_, slot_, 1), (from_, slot_, -1)
        ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.digest(payload_ text)
 RETURNS numeric
 LANGUAGE plpgsql
 IMMUTABLE STRICT
AS $function$
DECLARE
    bytes_ bytea := convert_to(payload_, 'UTF8');
    hash_ numeric := 144066263297769815596495629667062367629;
    low_ integer;
BEGIN
    FOR nth_ IN 0..length(bytes_) - 1 LOOP
        low_ := (hash_ % 256)::integer;
        hash_ := (hash_ - low_ + (low_ # get_byte(bytes_, nth_))) * 309485009821345068724781371
            % 340282366920938463463374607431768211456;
    END LOOP;
    RETURN hash_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.forget(runs_ text[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".inbox i WHERE i.run = ANY (runs_);
    DELETE FROM "outlast".turns t WHERE t.run = ANY (runs_);
    DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
END
$function$

CREATE OR REPLACE FUNCTION outlast.free(session_ text, now_ bigint, has_crashed_ boolean, build_ text, poison_ integer, message_ text, mark_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.owner = session_ ORDER BY r.owner, r.id FOR NO KEY UPDATE;
    WITH held AS (
        SELECT r.id, r.consumed, r.codeless,
            CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            CASE WHEN last.next_seq > r.next_seq THEN last.at ELSE r.turn_at END AS turn_at,
            greatest(last.next_seq, r.next_seq) AS next_seq,
            CASE WHEN NOT has_crashed_ OR r.crashes < 2 AND bool_or(r.crashes >= 2) OVER () THEN r.crashes
                ELSE r.crashes + 1 END AS crashes
        FROM "outlast".runs r
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq, t.at FROM "outlast".turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true
        WHERE r.owner = session_
    ), judged AS (
        SELECT h.*, has_crashed_ AND h.crashes >= poison_ AS is_stuck,
            CASE WHEN h.codeless <= h.consumed THEN 0 WHEN h.next_seq = 1 THEN h.codeless ELSE
                (SELECT coalesce(max(i.position), 0) FROM "outlast".inbox i
                 WHERE i.run = h.id AND i.position > h.consumed AND i.kind = 'terminate') END AS obeys
        FROM held h
    ), freed AS (
        UPDATE "outlast".runs r SET
            status = CASE WHEN j.is_stuck THEN 'stuck' ELSE 'pending' END,
            owner = NULL, preferred = NULL, turn = j.turn, next_seq = j.next_seq, turn_at = j.turn_at,
            updated_at = now_, wake_at = NULL, waits = '[]', crashes = j.crashes,
            ready_at = CASE WHEN NOT j.is_stuck OR j.obeys > 0 THEN now_ END,
            codeless = j.obeys,
            stuck_reason = CASE WHEN j.is_stuck THEN 'poison' END,
            stuck_message = CASE WHEN j.is_stuck THEN replace(message_, mark_, j.crashes::text) END,
            stuck_build = CASE WHEN j.is_stuck THEN build_ END,
            barred_build = CASE WHEN j.is_stuck THEN build_ ELSE r.barred_build END
        FROM judged j WHERE r.id = j.id
        RETURNING r.status
    )
    SELECT array_agg(f.status::text) || array_agg('running'::text) AS statuses,
        array_agg(1::bigint) || array_agg(-1::bigint) AS changes, count(*) AS n
    INTO moved_ FROM freed f;
    IF moved_.n > 0 THEN
        PERFORM "outlast".count(moved_.statuses, moved_.changes);
    END IF;
    RETURN moved_.n;
END
$function$

CREATE OR REPLACE FUNCTION outlast.give(session_ text, now_ bigint, chosen_ text[], ready_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, crashes integer, deadline bigint, is_overdue boolean, moment bigint, next_due bigint, first_build text, first_events text)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    SELECT array_agg(r.status::text) || array_agg('running'::text) AS statuses,
        array_agg(-1::bigint) || array_agg(1::bigint) AS changes
    INTO moved_ FROM "outlast".runs r WHERE r.id = ANY (chosen_);
    RETURN QUERY WITH given AS (
        UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL, waits = '[]',
            ready_at = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
        FROM unnest(chosen_) WITH ORDINALITY AS c (id, nth)
        WHERE r.id = c.id
        RETURNING r.*, c.nth
    )
    SELECT 'given', g.id::text, g.workflow::text, g.version, g.turn::text, g.next_seq, g.turn_at, g.sent, g.consumed,
        g.crashes, g.deadline, g.nth > ready_, NULL::bigint, NULL::bigint, t.build, t.events
    FROM given g LEFT JOIN "outlast".turns t ON t.run = g.id AND t.seq = 0 AND g.next_seq = 1
    ORDER BY g.nth;
    PERFORM "outlast".count(moved_.statuses, moved_.changes);
END
$function$

CREATE OR REPLACE FUNCTION outlast.hex(bits_ numeric)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
DECLARE
    digits_ text := '';
BEGIN
    FOR nth_ IN 1..32 LOOP
        digits_ := substr('0123456789abcdef', (bits_ % 16)::integer + 1, 1) || digits_;
        bits_ := div(bits_, 16);
    END LOOP;
    RETURN digits_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.hint()
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT pg_notify('{channel}', '0 w')
$function$

CREATE OR REPLACE FUNCTION outlast."join"(at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, served_ text[], time_ bigint, has_lock_ boolean, workflows_ text[], versions_ bigint[], OUT moment bigint, OUT rings boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    ids_ text[];
BEGIN
    moment := coalesce(at_, "outlast".clock());
    rings := false;
    INSERT INTO "outlast".sessions (id, host, pid, build, code, queues, time, joined_at, expires_at, beat_at, boot,
        has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, moment,
        least(moment, 9223372036854775807 - time_) + time_, moment, "outlast".boot(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        -- On both sides of what its own build left, so that it does not look at those.
        SELECT array_agg(other.id::text) INTO ids_ FROM (
            SELECT r.id FROM unnest(workflows_, versions_) AS c (workflow, version)
            JOIN "outlast".runs r ON r.workflow = c.workflow AND r.version = c.version AND r.barred_build < build_
            WHERE r.status = 'stuck' AND r.ready_at IS NULL AND r.queue = ANY (served_)
            UNION ALL
            SELECT r.id FROM unnest(workflows_, versions_) AS c (workflow, version)
            JOIN "outlast".runs r ON r.workflow = c.workflow AND r.version = c.version AND r.barred_build > build_
            WHERE r.status = 'stuck' AND r.ready_at IS NULL AND r.queue = ANY (served_)
        ) AS other;
        rings := ids_ IS NOT NULL;
        IF rings THEN
            PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (ids_) ORDER BY r.id FOR NO KEY UPDATE;
            UPDATE "outlast".runs r SET ready_at = CASE
                WHEN r.status = 'stuck' AND r.barred_build <> build_ AND r.ready_at IS NULL THEN moment
                ELSE r.ready_at END
            WHERE r.id = ANY (ids_);
        END IF;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.leave(at_ bigint, id_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".sessions s WHERE s.id = id_;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    RETURN "outlast".free(id_, coalesce(at_, "outlast".clock()), false, '', 0, '', '');
END
$function$

CREATE OR REPLACE FUNCTION outlast.lines(queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, suspects_ boolean)
 RETURNS outlast.line[]
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- Copies, because the elements of those are quick to reach.
    names_ text[] := workflows_;
    numbers_ bigint[] := versions_;
    count_ CONSTANT integer := cardinality(workflows_);
    lines_ "outlast".line[] := '{}';
    line_ "outlast".line;
    next_ record;
    nth_ integer;
    until_ integer;
    middle_ integer;
BEGIN
    line_.is_suspect := suspects_;
    FOREACH line_.queue IN ARRAY CASE WHEN count_ = 0 THEN '{}' ELSE queues_ END LOOP
        nth_ := 1;
        line_.workflow := ''; line_.version := -1; line_.format := -1; line_.barred := ''; line_.priority := -1;
        LOOP
            IF suspects_ THEN
                SELECT r.workflow, r.version, r.format, coalesce(r.barred_build, '') AS barred, r.priority, r.ready_at
                INTO next_
                FROM "outlast".runs r
                WHERE r.queue = line_.queue AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
                    AND (r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority)
                        > (line_.workflow, line_.version, line_.format, line_.barred, line_.priority)
                ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority,
                    r.ready_at, r.id LIMIT 1;
            ELSE
                SELECT r.workflow, r.version, r.format, coalesce(r.barred_build, '') AS barred, r.priority, r.ready_at
                INTO next_
                FROM "outlast".runs r
                WHERE r.queue = line_.queue AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                    AND (r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority)
                        > (line_.workflow, line_.version, line_.format, line_.barred, line_.priority)
                ORDER BY r.queue, r.workflow, r.version, r.format, coalesce(r.barred_build, ''), r.priority,
                    r.ready_at, r.id LIMIT 1;
            END IF;
            EXIT WHEN NOT FOUND;
            -- The first code that is not before the line.
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
                line_.format := -1; line_.barred := ''; line_.priority := -1;
                CONTINUE;
            END IF;
            line_.workflow := next_.workflow; line_.version := next_.version; line_.format := next_.format;
            line_.barred := next_.barred; line_.priority := next_.priority; line_.head := next_.ready_at;
            IF line_.format > format_ THEN
                -- Behind all of this code.
                line_.format := 2147483647; line_.priority := 32767;
            ELSIF line_.barred = build_ AND build_ <> '' THEN
                line_.priority := 32767;
            ELSE
                lines_ := array_append(lines_, line_);
            END IF;
        END LOOP;
    END LOOP;
    RETURN lines_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.lock_key(id_ text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT hashtextextended('outlast' || ' ' || id_, 20261115)
$function$

CREATE OR REPLACE FUNCTION outlast.new_bits(now_ bigint)
 RETURNS numeric
 LANGUAGE sql
AS $function$
    SELECT div(now_, 1000) * 1208925819614629174706176
        + ('x' || substr(chance.hex, 1, 12))::bit(48)::bigint::numeric * 4294967296
        + ('x' || substr(chance.hex, 25, 8))::bit(32)::bigint
    FROM (SELECT replace(gen_random_uuid()::text, '-', '') AS hex) AS chance
$function$

CREATE OR REPLACE FUNCTION outlast.next_due(session_ text, now_ bigint, floor_ bigint, preference_ bigint, line_ outlast.line)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- So many of those that come next are looked at: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    looked_ integer := 0;
    due_ bigint;
    next_ record;
BEGIN
    IF line_.is_suspect THEN
        -- No suspect has a preferred session: whoever held it last has crashed.
        SELECT r.ready_at INTO due_ FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred AND r.priority = line_.priority
            AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0 AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT 1;
        RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
    END IF;
    FOR next_ IN
        SELECT r.ready_at, r.preferred FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred AND r.priority = line_.priority
            AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0 AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT looks_
    LOOP
        looked_ := looked_ + 1;
        EXIT WHEN next_.ready_at >= due_;
        IF looked_ < looks_ AND next_.preferred <> session_ THEN
            PERFORM 1 FROM "outlast".sessions s WHERE s.id = next_.preferred;
            IF FOUND THEN
                due_ := least(due_, least(next_.ready_at, 9223372036854775807 - preference_) + preference_);
                CONTINUE;
            END IF;
        END IF;
        due_ := least(due_, next_.ready_at);
        EXIT;
    END LOOP;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$function$

CREATE OR REPLACE FUNCTION outlast.next_due_of(session_ text, now_ bigint, has_room_ boolean, suspect_ boolean, preference_ bigint, lines_ outlast.line[], has_codeless_ boolean)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- So many lines with nothing ready are looked into; of the others it is enough to know the first moment.
    looks_ CONSTANT integer := 5;
    looked_ integer := 0;
    floor_ CONSTANT bigint := CASE WHEN has_room_ THEN -9223372036854775808 ELSE now_ END;
    suspect_floor_ CONSTANT bigint := CASE WHEN suspect_ THEN floor_ ELSE now_ END;
    line_ "outlast".line;
    later_ "outlast".line[] := '{}';
    due_ bigint;
BEGIN
    FOREACH line_ IN ARRAY lines_ LOOP
        IF line_.head <= now_ THEN
            due_ := least(due_, "outlast".next_due(session_, now_,
                CASE WHEN line_.is_suspect THEN suspect_floor_ ELSE floor_ END, preference_, line_));
        ELSE
            later_ := array_append(later_, line_);
        END IF;
    END LOOP;
    IF cardinality(later_) > 0 THEN
        FOR line_ IN SELECT (l).* FROM unnest(later_) AS l ORDER BY l.head LIMIT looks_ + 1 LOOP
            looked_ := looked_ + 1;
            EXIT WHEN line_.head >= due_;
            due_ := least(due_, CASE WHEN looked_ > looks_ THEN line_.head
                ELSE "outlast".next_due(session_, now_, floor_, preference_, line_) END);
        END LOOP;
    END IF;
    IF has_codeless_ AND has_room_ THEN
        due_ := least(due_, (
            SELECT min(CASE
                WHEN l.preferred <> session_ AND EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = l.preferred)
                    THEN least(l.ready_at, 9223372036854775807 - preference_) + preference_
                ELSE l.ready_at END)
            FROM (SELECT r.ready_at, r.preferred FROM "outlast".runs r WHERE r.codeless > 0 AND r.ready_at IS NOT NULL
                    AND (r.crashes < 2 OR suspect_ OR r.ready_at > now_)
                ORDER BY r.ready_at, r.id LIMIT 20) l));
    END IF;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$function$

CREATE OR REPLACE FUNCTION outlast.prune(before_ bigint, after_ text, limit_ integer, rows_ integer)
 RETURNS TABLE(runs bigint, next text, has_leftovers boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    part_ record;
    gone_ record;
BEGIN
    SELECT array_agg(p.id::text ORDER BY p.id) FILTER (WHERE p.ended_at < before_) AS old, max(p.id) AS last, count(*) AS n
    INTO part_
    FROM (SELECT r.id, r.ended_at FROM "outlast".runs r WHERE r.id > after_ ORDER BY r.id LIMIT limit_) p;
    runs := 0;
    next := CASE WHEN part_.n = limit_ THEN part_.last END;
    IF part_.old IS NOT NULL THEN
        DELETE FROM "outlast".tags t WHERE t.run = ANY (part_.old);
        WITH gone AS (DELETE FROM "outlast".runs r WHERE r.id = ANY (part_.old) AND r.ended_at < before_ RETURNING r.id, r.status)
        SELECT array_agg(g.id::text) AS ids, array_agg(g.status::text) AS statuses, array_agg(-1::bigint) AS changes,
            count(*) AS n INTO gone_ FROM gone g;
        runs := gone_.n;
        IF gone_.n > 0 THEN
            IF NOT "outlast".sweep(gone_.ids, rows_, false) THEN
                INSERT INTO "outlast".leftovers (run) SELECT unnest(gone_.ids) ON CONFLICT DO NOTHING;
            END IF;
            PERFORM "outlast".count(gone_.statuses, gone_.changes);
        END IF;
    END IF;
    has_leftovers := EXISTS (SELECT 1 FROM "outlast".leftovers);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_held(session_ text, now_ bigint, format_ integer, run_ text, turn_at_ bigint, workflow_ text, version_ bigint, queue_ text, priority_ smallint, key_ text, digest_ text, window_ bigint, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text, deadline_ bigint, names_ text[], values_ text[], OUT code text, OUT run text, OUT workflow text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    row_ "outlast".runs;
    put_ record;
BEGIN
    row_.id := run_; row_.workflow := workflow_; row_.version := version_; row_.format := format_;
    row_.queue := queue_; row_.priority := priority_; row_.key := key_; row_.key_digest := digest_;
    row_.status := 'running'; row_.owner := session_; row_.turn := ''; row_.next_seq := 0;
    row_.turn_at := turn_at_; row_.created_at := now_; row_.updated_at := now_; row_.waits := '[]';
    row_.codeless := 0; row_.sent := 0; row_.consumed := 0; row_.crashes := 0; row_.parent := parent_;
    row_.parent_op := parent_op_; row_.parent_awaits := parent_awaits_; row_.root := root_;
    row_.deadline := deadline_;
    put_ := "outlast".put_run(row_, window_, names_, values_);
    code := put_.code; run := put_.run; workflow := put_.workflow;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_message(run_ text, id_ text, at_ bigint, kind_ text, name_ text, op_ bigint, outcome_ text, codec_ text, body_ text, raw_ bytea, headers_ text, limit_ bigint, codeless_ text, OUT code text, OUT number bigint, OUT status text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    run record;
    now_ bigint;
    is_codeless_ boolean;
BEGIN
    SELECT r.status, r.sent, r.consumed, r.next_seq, r.owner INTO run
    FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        code := 'none';
        RETURN;
    END IF;
    -- Read under the lock: a turn that fired a timer before has its moment behind it.
    now_ := coalesce(at_, "outlast".clock());
    SELECT position INTO number FROM "outlast".inbox i WHERE i.run = run_ AND i.id = id_;
    IF FOUND THEN
        code := 'sent';
        RETURN;
    END IF;
    IF run.status IN ('completed', 'failed', 'cancelled') THEN
        code := 'ended'; status := run.status;
        RETURN;
    END IF;
    IF run.sent - run.consumed >= limit_ THEN
        code := 'full'; number := run.sent - run.consumed; status := run.status;
        RETURN;
    END IF;
    number := run.sent + 1;
    is_codeless_ := codeless_ = 'always' OR codeless_ = 'fresh' AND run.next_seq <= 1;
    INSERT INTO "outlast".inbox (run, position, id, at, kind, name, op, outcome, codec, body, raw, headers)
    VALUES (run_, number, id_, now_, kind_, name_, op_, outcome_, codec_, body_, raw_, headers_);
    UPDATE "outlast".runs r SET sent = number, updated_at = now_,
        ready_at = CASE WHEN r.owner IS NOT NULL THEN r.ready_at
            WHEN NOT is_codeless_ AND (r.status = 'stuck' OR r.status = 'pending' AND r.wake_at IS NOT NULL)
            THEN r.ready_at
            ELSE least(coalesce(r.ready_at, now_), now_) END,
        codeless = CASE WHEN is_codeless_ THEN number ELSE r.codeless END
    WHERE r.id = run_;
    code := 'sent';
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_run(new_ outlast.runs, window_ bigint, names_ text[], values_ text[], OUT code text, OUT run text, OUT workflow text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    found_ record;
BEGIN
    FOR try_ IN 1..10 LOOP
        INSERT INTO "outlast".runs VALUES (new_.*) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            IF cardinality(names_) > 0 THEN
                PERFORM "outlast".put_tags(new_.id, names_, values_);
            END IF;
            code := 'new'; run := new_.id;
            RETURN;
        END IF;
        PERFORM 1 FROM "outlast".runs WHERE id = new_.id;
        IF FOUND THEN
            code := 'same'; run := new_.id;
            RETURN;
        END IF;
        SELECT r.id, r.workflow, r.key_digest, r.created_at INTO found_ FROM "outlast".runs r WHERE r.key = new_.key;
        CONTINUE WHEN NOT FOUND;
        IF window_ IS NOT NULL AND found_.created_at <= new_.created_at - window_ THEN
            -- The only row that is locked behind keys. Somebody who has it may wait for one of those: then Postgres
            -- undoes one of the two (40P01), and the world makes that call again. It takes a window that has just
            -- ended and a message to that run at the same moment.
            UPDATE "outlast".runs SET key = NULL, key_digest = NULL WHERE id = found_.id AND key = new_.key;
            CONTINUE;
        END IF;
        code := CASE WHEN found_.workflow = new_.workflow AND found_.key_digest = new_.key_digest
                     THEN 'other' ELSE 'taken' END;
        run := found_.id; workflow := found_.workflow;
        RETURN;
    END LOOP;
    RAISE EXCEPTION 'run % was neither new nor there', new_.id USING ERRCODE = '40001';
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_start(now_ bigint, format_ integer, run_ text, turn_ text, workflow_ text, version_ bigint, queue_ text, priority_ smallint, key_ text, digest_ text, window_ bigint, events_ text, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text, not_before_ bigint, deadline_ bigint, names_ text[], values_ text[], OUT code text, OUT run text, OUT workflow text)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    row_ "outlast".runs;
    put_ record;
BEGIN
    row_.id := run_; row_.workflow := workflow_; row_.version := version_; row_.format := format_;
    row_.queue := queue_; row_.priority := priority_; row_.key := key_; row_.key_digest := digest_;
    row_.status := 'pending'; row_.turn := turn_; row_.next_seq := 1; row_.turn_at := now_;
    row_.created_at := now_; row_.updated_at := now_;
    row_.wake_at := CASE WHEN not_before_ > now_ THEN not_before_ END; row_.waits := '[]';
    row_.ready_at := coalesce(row_.wake_at, now_); row_.codeless := 0; row_.sent := 0; row_.consumed := 0;
    row_.crashes := 0; row_.parent := parent_; row_.parent_op := parent_op_; row_.parent_awaits := parent_awaits_;
    row_.root := root_; row_.deadline := deadline_;
    put_ := "outlast".put_run(row_, window_, names_, values_);
    code := put_.code; run := put_.run; workflow := put_.workflow;
    IF code = 'new' THEN
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        VALUES (run_, 0, 1, turn_, now_, '', events_)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM "outlast".forget(ARRAY[run_]);
            INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
            VALUES (run_, 0, 1, turn_, now_, '', events_);
        END IF;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_tags(run_ text, names_ text[], values_ text[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO "outlast".tags (run, name, value)
    SELECT run_, tag.name, tag.value FROM unnest(names_, values_) AS tag (name, value)
    ON CONFLICT (run, name) DO UPDATE SET value = excluded.value;
END
$function$

CREATE OR REPLACE FUNCTION outlast.ready(session_ text, now_ bigint, limit_ integer, preference_ bigint, line_ outlast.line, OUT ids text[], OUT ranks bigint[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    IF line_.is_suspect THEN
        SELECT array_agg(f.id::text), array_agg(f.ready_at - line_.priority::bigint * 10000000) INTO ids, ranks
        FROM (
            SELECT r.id, r.ready_at FROM "outlast".runs r
            WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
                AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred
                AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND r.crashes >= 2 AND r.codeless = 0
                AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id LIMIT 1 FOR NO KEY UPDATE OF r SKIP LOCKED) f;
    ELSE
        SELECT array_agg(f.id::text), array_agg(f.ready_at - line_.priority::bigint * 10000000) INTO ids, ranks
        FROM (
            SELECT r.id, r.ready_at FROM "outlast".runs r
            WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
                AND r.format = line_.format AND coalesce(r.barred_build, '') = line_.barred
                AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND r.crashes < 2 AND r.codeless = 0
                AND r.ready_at <= now_
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred))
            ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.resume(at_ bigint, id_ text)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    status_ text;
BEGIN
    SELECT r.status INTO status_ FROM "outlast".runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    IF status_ = 'stuck' THEN
        UPDATE "outlast".runs r SET ready_at = coalesce(at_, "outlast".clock()), barred_build = NULL WHERE r.id = id_;
    END IF;
    RETURN status_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.send(at_ bigint, run_ text[], id_ text[], kind_ text[], name_ text[], op_ bigint[], outcome_ text[], codec_ text[], body_ text[], raw_ bytea[], headers_ text[], limit_ bigint[], codeless_ text[])
 RETURNS TABLE(code text, number bigint, status text)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (run_) ORDER BY r.id FOR NO KEY UPDATE;
    FOR i IN 1..coalesce(array_length(run_, 1), 0) LOOP
        RETURN QUERY SELECT p.* FROM "outlast".put_message(run_[i], id_[i], at_, kind_[i], name_[i], op_[i],
            outcome_[i], codec_[i], body_[i], raw_[i], headers_[i], limit_[i], codeless_[i]) AS p;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.send_to(run text, hook text, payload json, key text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT "outlast".send_to(run, hook, payload::text, key)
$function$

CREATE OR REPLACE FUNCTION outlast.send_to(run text, hook text, payload jsonb, key text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT "outlast".send_to(run, hook, "outlast".compact(payload), key)
$function$

CREATE OR REPLACE FUNCTION outlast.send_to(run text, hook text, payload text DEFAULT 'null'::text, key text DEFAULT NULL::text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_variable
DECLARE
    id_ text;
    payload_ text := coalesce(payload::json::text, 'null');
    answer_ record;
BEGIN
    IF hook IS NULL OR octet_length(hook) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the hook''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF octet_length(key) NOT BETWEEN 1 AND 256 THEN
        RAISE EXCEPTION 'the key of a send is empty or longer than 256 bytes' USING ERRCODE = '22023';
    END IF;
    PERFORM "outlast".check_payload(payload_);
    id_ := 'msg_' || "outlast".base32(coalesce("outlast".digest(run || ' ' || key), "outlast".new_bits("outlast".clock())));
    SELECT s.code, s.number, s.status INTO answer_ FROM "outlast".send(
        NULL, ARRAY[run], ARRAY[id_], ARRAY['hook'], ARRAY["outlast".stored(hook)], ARRAY[NULL::bigint], ARRAY[NULL::text],
        ARRAY[NULL::text], ARRAY[payload_], ARRAY[NULL::bytea], ARRAY[NULL::text],
        ARRAY[10000::bigint], ARRAY['never']) AS s;
    IF answer_.code = 'none' THEN
        RAISE EXCEPTION 'there is no run %', run USING ERRCODE = '02000', HINT = 'check the id';
    ELSIF answer_.code = 'ended' THEN
        RAISE EXCEPTION 'run % has ended, it is %', run, answer_.status USING ERRCODE = '55000';
    ELSIF answer_.code = 'full' THEN
        RAISE EXCEPTION 'the inbox of run % is full: % messages are unread', run, answer_.number
            USING ERRCODE = '54000', HINT = 'wait until the run has read some';
    END IF;
    PERFORM "outlast".hint();
END
$function$

CREATE OR REPLACE FUNCTION outlast.start(at_ bigint, format_ integer, run_ text[], turn_ text[], born_ bigint[], workflow_ text[], version_ bigint[], queue_ text[], priority_ smallint[], key_ text[], digest_ text[], window_ bigint[], events_ text[], parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[], root_ text[], not_before_ bigint[], deadline_ bigint[], tag_of_ integer[], tag_name_ text[], tag_value_ text[])
 RETURNS TABLE(nth integer, code text, run text, workflow text, moment bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
    put_ record;
    i integer;
    added_ bigint;
    begun_ bigint;
    keyed_ bigint := 0;
    asked_ bigint[];
BEGIN
    WITH asked AS (
        SELECT * FROM unnest(run_, turn_, born_, workflow_, version_, queue_, priority_, key_, events_, parent_,
            parent_op_, parent_awaits_, root_, not_before_, deadline_) WITH ORDINALITY
            AS a (run, turn, born, workflow, version, queue, priority, key, events, parent, parent_op,
                  parent_awaits, root, not_before, deadline, nth)
        WHERE a.key IS NULL AND NOT EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.id = a.run)
    ), added AS (
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
            created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, format_, a.queue, a.priority, 'pending', a.turn, 1, now_,
            now_, now_, CASE WHEN a.not_before > now_ THEN a.not_before END,
            CASE WHEN a.not_before > now_ THEN a.not_before ELSE now_ END,
            a.parent, a.parent_op, a.parent_awaits, a.root, a.deadline
        FROM asked a ORDER BY a.nth
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), begun AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events FROM asked a
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), tagged AS (
        INSERT INTO "outlast".tags (run, name, value)
        SELECT run_[t.of], t.name, t.value FROM unnest(tag_of_, tag_name_, tag_value_) AS t (of, name, value)
        WHERE key_[t.of] IS NULL AND NOT EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.id = run_[t.of])
        ON CONFLICT DO NOTHING
    )
    SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM begun), (SELECT array_agg(a.nth) FROM asked a)
    INTO added_, begun_, asked_;
    asked_ := coalesce(asked_, '{}');
    IF added_ <> cardinality(asked_) THEN
        RAISE EXCEPTION 'another try of a start was faster' USING ERRCODE = '40001';
    END IF;
    IF begun_ <> added_ THEN
        PERFORM "outlast".forget(ARRAY(SELECT run_[a.nth] FROM unnest(asked_) AS a (nth)));
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT run_[a.nth], 0, 1, turn_[a.nth], now_, '', events_[a.nth] FROM unnest(asked_) AS a (nth);
    END IF;
    -- In order of the keys, so that nobody waits in a circle.
    FOR i IN SELECT k.nth FROM unnest(key_) WITH ORDINALITY AS k (key, nth)
        WHERE k.key IS NOT NULL ORDER BY k.key COLLATE "C", k.nth
    LOOP
        put_ := "outlast".put_start(now_, format_, run_[i], turn_[i], workflow_[i], version_[i], queue_[i], priority_[i],
            key_[i], digest_[i], window_[i], events_[i], parent_[i], parent_op_[i], parent_awaits_[i], root_[i],
            not_before_[i], deadline_[i],
            ARRAY(SELECT t.name FROM unnest(tag_of_, tag_name_) AS t (of, name) WHERE t.of = i),
            ARRAY(SELECT t.value FROM unnest(tag_of_, tag_value_) AS t (of, value) WHERE t.of = i));
        keyed_ := keyed_ + 1;
        IF put_.code = 'new' THEN
            added_ := added_ + 1;
        ELSE
            nth := i; code := put_.code; run := put_.run; workflow := put_.workflow;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF cardinality(asked_) + keyed_ < cardinality(run_) THEN
        RETURN QUERY SELECT a.nth::integer, 'same', run_[a.nth], workflow_[a.nth], NULL::bigint
        FROM unnest(key_) WITH ORDINALITY AS a (key, nth) WHERE a.key IS NULL AND a.nth <> ALL (asked_);
    END IF;
    -- Behind the keys, which this may have waited for.
    IF added_ > 0 THEN
        PERFORM "outlast".widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(born_) AS b (born);
        PERFORM "outlast".count(ARRAY['pending'], ARRAY[added_]);
    END IF;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_one(at_ bigint, format_ integer, run_ text, turn_ text, born_ bigint, workflow_ text, version_ bigint, queue_ text, priority_ smallint, events_ text, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text, not_before_ bigint, deadline_ bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
    wake_at_ bigint := CASE WHEN not_before_ > now_ THEN not_before_ END;
BEGIN
    INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
    VALUES (run_, workflow_, version_, format_, queue_, priority_, 'pending', turn_, 1, now_, now_, now_, wake_at_,
        coalesce(wake_at_, now_), parent_, parent_op_, parent_awaits_, root_, deadline_)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    VALUES (run_, 0, 1, turn_, now_, '', events_);
    PERFORM "outlast".widen(born_ - now_ / 1000, born_ - now_ / 1000);
    PERFORM "outlast".count_move(NULL, 'pending');
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_run(workflow text, input json, key text DEFAULT NULL::text, version bigint DEFAULT 1, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline timestamp with time zone DEFAULT NULL::timestamp with time zone, tags json DEFAULT NULL::json, headers json DEFAULT NULL::json)
 RETURNS text
 LANGUAGE sql
AS $function$
    SELECT "outlast".start_run(workflow, input::text, key, version, queue, priority, not_before, deadline, tags, headers)
$function$

CREATE OR REPLACE FUNCTION outlast.start_run(workflow text, input jsonb, key text DEFAULT NULL::text, version bigint DEFAULT 1, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline timestamp with time zone DEFAULT NULL::timestamp with time zone, tags json DEFAULT NULL::json, headers json DEFAULT NULL::json)
 RETURNS text
 LANGUAGE sql
AS $function$
    SELECT "outlast".start_run(workflow, "outlast".compact(input), key, version, queue, priority, not_before, deadline, tags, headers)
$function$

CREATE OR REPLACE FUNCTION outlast.start_run(workflow text, input text DEFAULT 'null'::text, key text DEFAULT NULL::text, version bigint DEFAULT 1, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline timestamp with time zone DEFAULT NULL::timestamp with time zone, tags json DEFAULT NULL::json, headers json DEFAULT NULL::json)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_variable
DECLARE
    now_ bigint := "outlast".clock();
    bits_ numeric := "outlast".new_bits(now_);
    input_ text := coalesce(input::json::text, 'null');
    run_ text := 'run_' || "outlast".base32(bits_);
    deadline_ bigint := (extract(epoch FROM deadline) * 1000000)::bigint;
    event_ text;
    names_ text[];
    values_ text[];
    answer_ record;
BEGIN
    IF workflow IS NULL OR octet_length(workflow) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the workflow''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF octet_length(key) NOT BETWEEN 1 AND 256 THEN
        RAISE EXCEPTION 'the start key is empty or longer than 256 bytes' USING ERRCODE = '22023';
    ELSIF queue IS NULL OR octet_length(queue) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'the queue''s name is empty or longer than 128 bytes' USING ERRCODE = '22023';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'the priority % is not between 0 and 9', priority USING ERRCODE = '22023';
    ELSIF version IS NULL OR version NOT BETWEEN 0 AND 4294967295 THEN
        RAISE EXCEPTION 'the version % is not one', version USING ERRCODE = '22023';
    ELSIF deadline_ <= now_ THEN
        RAISE EXCEPTION 'the deadline % is not after now', deadline USING ERRCODE = '22023';
    ELSIF octet_length(headers::text) > 16384 THEN
        RAISE EXCEPTION 'the headers have more than 16384 bytes' USING ERRCODE = '54000';
    END IF;
    PERFORM "outlast".check_payload(input_);
    SELECT coalesce(array_agg(t.key), '{}'), coalesce(array_agg(t.value), '{}') INTO names_, values_
    FROM json_each_text(tags) AS t (key, value);
    IF cardinality(names_) > 32 OR EXISTS (SELECT 1 FROM unnest(names_, values_) AS t (name, value)
        WHERE octet_length(t.name) NOT BETWEEN 1 AND 128 OR octet_length(t.value) > 256 OR t.value IS NULL) THEN
        RAISE EXCEPTION 'there are more than 32 tags, or one that is too long or null' USING ERRCODE = '22023';
    END IF;
    event_ := '{"kind":"run_started","workflow":' || to_json(workflow) || ',"version":' || version || ',"format":1'
        || coalesce(',"key":' || to_json(key), '')
        || CASE WHEN queue = 'default' THEN '' ELSE ',"queue":' || to_json(queue) END
        || CASE WHEN priority = 0 THEN '' ELSE ',"priority":' || priority END
        || ',"input":' || input_
        || coalesce(',"headers":' || headers, '')
        || CASE WHEN cardinality(names_) = 0 THEN '' ELSE ',"tags":' || json_object(names_, values_) END
        || coalesce(',"deadline":' || deadline_, '') || '}';
    SELECT s.code, s.run, s.workflow INTO answer_ FROM "outlast".start(
        NULL, 1, ARRAY[run_], ARRAY['turn_' || "outlast".base32("outlast".new_bits(now_))],
        ARRAY[now_ / 1000], ARRAY["outlast".stored(workflow)], ARRAY[version], ARRAY["outlast".stored(queue)],
        ARRAY[priority::smallint], ARRAY["outlast".stored(key)],
        ARRAY[CASE WHEN key IS NOT NULL THEN "outlast".hex("outlast".digest(input_)) END],
        ARRAY[NULL::bigint], ARRAY['[' || event_ || ']'], ARRAY[NULL::text], ARRAY[NULL::bigint], ARRAY[NULL::boolean],
        ARRAY[NULL::text], ARRAY[(extract(epoch FROM not_before) * 1000000)::bigint], ARRAY[deadline_],
        array_fill(1, ARRAY[cardinality(names_)]), ARRAY(SELECT "outlast".stored(t.name) FROM unnest(names_) AS t (name)),
        ARRAY(SELECT "outlast".stored(t.value) FROM unnest(values_) AS t (value))) AS s
    WHERE s.nth = 1;
    IF answer_.code = 'taken' THEN
        RAISE EXCEPTION 'the key "%" names run % of workflow "%", with another workflow or input',
            key, answer_.run, replace(answer_.workflow, U&'\E0001', U&'\E000') USING ERRCODE = '23505', HINT = 'choose another key';
    END IF;
    PERFORM "outlast".hint();
    RETURN coalesce(answer_.run, run_);
END
$function$

CREATE OR REPLACE FUNCTION outlast.stored(text_ text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
BEGIN
    RETURN replace(text_, U&'\E000', U&'\E0001');
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep(runs_ text[], limit_ integer, may_be_back_ boolean)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    swept_ bigint;
BEGIN
    DELETE FROM "outlast".inbox i USING (
        SELECT m.run, m.position FROM unnest(runs_) AS u (run)
        CROSS JOIN LATERAL (SELECT o.run, o.position FROM "outlast".inbox o WHERE o.run = u.run ORDER BY o.position DESC) m
        WHERE NOT may_be_back_ OR (SELECT r.id FROM "outlast".runs r WHERE r.id = u.run) IS NULL LIMIT limit_) old
    WHERE i.run = old.run AND i.position = old.position;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    IF swept_ = limit_ THEN
        RETURN false;
    END IF;
    DELETE FROM "outlast".turns t USING (
        SELECT m.run, m.seq FROM unnest(runs_) AS u (run)
        CROSS JOIN LATERAL (SELECT o.run, o.seq FROM "outlast".turns o WHERE o.run = u.run ORDER BY o.seq DESC) m
        WHERE NOT may_be_back_ OR (SELECT r.id FROM "outlast".runs r WHERE r.id = u.run) IS NULL LIMIT limit_) old
    WHERE t.run = old.run AND t.seq = old.seq;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    RETURN swept_ < limit_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep_leftovers(rows_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    runs_ text[];
BEGIN
    SELECT array_agg(l.run::text) INTO runs_ FROM (SELECT run FROM "outlast".leftovers ORDER BY run LIMIT 100) l;
    IF runs_ IS NULL THEN
        RETURN false;
    END IF;
    IF "outlast".sweep(runs_, rows_, true) THEN
        DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM "outlast".leftovers);
END
$function$

CREATE OR REPLACE FUNCTION outlast.takeover(at_ bigint, id_ text, patience_ bigint, poison_ integer, message_ text, mark_build_ text, mark_crashes_ text)
 RETURNS TABLE(runs bigint, ended bigint, moment bigint, suspects bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock());
    boot_ bigint := "outlast".boot();
    other_ "outlast".sessions;
    gone_ "outlast".sessions[] := '{}';
    held_ text[];
    is_free_ boolean;
    is_late_ boolean;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = id_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    runs := 0; ended := 0; moment := now_; suspects := 0;
    FOR other_ IN SELECT s.* FROM "outlast".sessions s WHERE s.id <> id_ ORDER BY s.id LOOP
        -- Shared: others who look at the same time must not take this for a sign of life.
        is_free_ := other_.has_lock AND pg_try_advisory_xact_lock_shared("outlast".lock_key(other_.id));
        is_late_ := other_.expires_at <= now_;
        IF at_ IS NULL AND other_.boot <> boot_ THEN
            is_free_ := false;
            is_late_ := is_late_ AND boot_ <= now_ - other_.time;
        END IF;
        IF is_free_ AND NOT is_late_ AND patience_ > 0 THEN
            IF other_.suspect_since IS NULL THEN
                UPDATE "outlast".sessions s SET suspect_since = now_ WHERE s.id = other_.id AND s.suspect_since IS NULL;
            END IF;
            IF other_.suspect_since IS NULL OR other_.suspect_since > now_ - patience_ THEN
                suspects := suspects + 1;
                CONTINUE;
            END IF;
        ELSIF NOT is_free_ AND NOT is_late_ THEN
            IF other_.suspect_since IS NOT NULL THEN
                UPDATE "outlast".sessions s SET suspect_since = NULL WHERE s.id = other_.id;
            END IF;
            CONTINUE;
        END IF;
        -- Unless it has beaten, or found its lock again, in the meantime.
        DELETE FROM "outlast".sessions s WHERE s.id = other_.id AND s.expires_at = other_.expires_at;
        CONTINUE WHEN NOT FOUND;
        gone_ := array_append(gone_, other_);
    END LOOP;
    ended := cardinality(gone_);
    IF ended > 1 THEN
        SELECT array_agg(r.id::text) INTO held_ FROM unnest(gone_) AS g JOIN "outlast".runs r ON r.owner = g.id;
        PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (held_) ORDER BY r.id FOR NO KEY UPDATE;
    END IF;
    FOREACH other_ IN ARRAY gone_ LOOP
        runs := runs + "outlast".free(other_.id, now_, true, other_.build, poison_,
            replace(message_, mark_build_, other_.build), mark_crashes_);
    END LOOP;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.widen(lowest_ bigint, highest_ bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    low_  bigint := (lowest_ >> 10) << 10;
    high_ bigint := highest_ | 1023;
BEGIN
    PERFORM 1 FROM "outlast".skew WHERE lowest <= low_ AND highest >= high_;
    IF NOT FOUND THEN
        INSERT INTO "outlast".skew AS skew (one, lowest, highest) VALUES (true, low_, high_)
        ON CONFLICT (one) DO UPDATE
        SET lowest = least(skew.lowest, low_), highest = greatest(skew.highest, high_);
    END IF;
END
$function$
