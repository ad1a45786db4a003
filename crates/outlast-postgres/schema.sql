-- Generated: the schema as the migrations leave it.

table chunk_leftovers: run text NOT NULL

table chunks: run text NOT NULL, stream text NOT NULL, first bigint NOT NULL, next bigint NOT NULL, at bigint NOT NULL, op bigint, attempt text, entries text NOT NULL WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table counts: status text NOT NULL, slot smallint NOT NULL, n bigint NOT NULL WITH (fillfactor=50)

table heartbeats: run text NOT NULL, op bigint NOT NULL, attempt bigint NOT NULL, codec text, body text, raw bytea WITH (fillfactor=70)

table inbox: run text NOT NULL, position bigint NOT NULL, id text NOT NULL, at bigint NOT NULL, kind text NOT NULL, name text, op bigint, outcome text, codec text, body text, raw bytea, headers text, after_cancel boolean WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table leftovers: run text NOT NULL

table migrations: version integer NOT NULL, at timestamp with time zone NOT NULL DEFAULT now()

table record_counts: space text NOT NULL, n bigint NOT NULL

table records: space text NOT NULL, id text NOT NULL, body text NOT NULL, at bigint NOT NULL

table replies: run text NOT NULL, message text NOT NULL, at bigint NOT NULL, outcome text NOT NULL, codec text, body text, raw bytea

table runs: id text NOT NULL, workflow text NOT NULL, version bigint NOT NULL, format integer NOT NULL, queue text NOT NULL DEFAULT 'default'::text, priority smallint NOT NULL DEFAULT 0, key text, key_digest text, status text NOT NULL, owner text, preferred text, turn text NOT NULL, next_seq bigint NOT NULL, turn_at bigint NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, ended_at bigint, wake_at bigint, waits text NOT NULL DEFAULT '[]'::text, ready_at bigint, sent bigint NOT NULL DEFAULT 0, consumed bigint NOT NULL DEFAULT 0, last_terminate bigint NOT NULL DEFAULT 0, last_cancel bigint NOT NULL DEFAULT 0, cancel_requested boolean NOT NULL DEFAULT false, kept bigint NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0, failed_builds text NOT NULL DEFAULT ''::text, failed_at bigint NOT NULL DEFAULT 0, stuck_reason text, stuck_message text, stuck_build text, parent text, parent_op bigint, parent_awaits boolean, root text, deadline bigint, crash_class smallint NOT NULL DEFAULT
CASE
    WHEN (crashes < 2) THEN 0
    ELSE LEAST(crashes, 4)
END, ends_without_code boolean NOT NULL DEFAULT ((last_terminate > consumed) OR ((next_seq <= 1) AND (last_cancel > consumed))), marks integer NOT NULL DEFAULT 0, replay_from bigint NOT NULL DEFAULT 0, continued bigint NOT NULL DEFAULT 0, retrying boolean NOT NULL DEFAULT false, failure text, fingerprint bigint WITH (fillfactor=85, autovacuum_vacuum_scale_factor=0.02, autovacuum_analyze_scale_factor=0.05)

table sessions: id text NOT NULL, host text NOT NULL, pid bigint NOT NULL, build text NOT NULL, code text NOT NULL, queues text NOT NULL, time bigint NOT NULL, rules integer NOT NULL, format integer NOT NULL, interface integer NOT NULL, joined_at bigint NOT NULL, expires_at bigint NOT NULL, beat_at bigint NOT NULL, boot bigint NOT NULL, has_lock boolean NOT NULL, lock_free_since bigint, report text NOT NULL DEFAULT '{}'::text, ended_at bigint, crashed boolean, held_runs bigint, held_class integer, version text WITH (fillfactor=50)

table settings: one boolean NOT NULL, clock_offset bigint NOT NULL, identity uuid NOT NULL DEFAULT gen_random_uuid(), rules integer

table skew: one boolean NOT NULL, lowest bigint NOT NULL, highest bigint NOT NULL

table states: run text NOT NULL, turn text NOT NULL, at bigint NOT NULL, version bigint NOT NULL, dropped bigint NOT NULL, codec text, body text, raw bytea WITH (fillfactor=50)

table stream_writers: run text NOT NULL, op bigint NOT NULL, stream text NOT NULL, attempt text NOT NULL, session text NOT NULL, count bigint NOT NULL, first bigint NOT NULL, next bigint NOT NULL WITH (fillfactor=50)

table streams: run text NOT NULL, name text NOT NULL, first bigint NOT NULL DEFAULT 0, next bigint NOT NULL DEFAULT 0, closed_by text, keep_last bigint, dropped bigint NOT NULL DEFAULT 0, late bigint NOT NULL DEFAULT 0, turn text WITH (fillfactor=50)

table tags: run text NOT NULL, name text NOT NULL, value text NOT NULL WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table tokens: hash text NOT NULL, run text NOT NULL, op bigint NOT NULL, hook text NOT NULL, opened_at bigint NOT NULL, keep_for bigint, kept_until bigint, webhook text, codec text, body text, raw bytea

table turns: run text NOT NULL, seq bigint NOT NULL, next_seq bigint NOT NULL, id text NOT NULL, at bigint NOT NULL, build text NOT NULL, events text NOT NULL WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.05)

table unmerged: id bigint NOT NULL, status text NOT NULL, n bigint NOT NULL, lowest bigint NOT NULL, highest bigint NOT NULL

constraint chunk_leftovers_pkey of outlast.chunk_leftovers: PRIMARY KEY (run)

constraint chunks_pkey of outlast.chunks: PRIMARY KEY (run, stream, first)

constraint counts_pkey of outlast.counts: PRIMARY KEY (status, slot)

constraint heartbeats_pkey of outlast.heartbeats: PRIMARY KEY (run, op)

constraint inbox_id of outlast.inbox: UNIQUE (run, id)

constraint inbox_pkey of outlast.inbox: PRIMARY KEY (run, "position")

constraint leftovers_pkey of outlast.leftovers: PRIMARY KEY (run)

constraint migrations_pkey of outlast.migrations: PRIMARY KEY (version)

constraint record_counts_pkey of outlast.record_counts: PRIMARY KEY (space)

constraint records_pkey of outlast.records: PRIMARY KEY (space, id)

constraint replies_pkey of outlast.replies: PRIMARY KEY (run, message)

constraint runs_pkey of outlast.runs: PRIMARY KEY (id)

constraint sessions_pkey of outlast.sessions: PRIMARY KEY (id)

constraint settings_one of outlast.settings: CHECK (one)

constraint settings_pkey of outlast.settings: PRIMARY KEY (one)

constraint skew_one of outlast.skew: CHECK (one)

constraint skew_pkey of outlast.skew: PRIMARY KEY (one)

constraint states_pkey of outlast.states: PRIMARY KEY (run)

constraint stream_writers_pkey of outlast.stream_writers: PRIMARY KEY (run, op, stream)

constraint streams_pkey of outlast.streams: PRIMARY KEY (run, name)

constraint tags_pkey of outlast.tags: PRIMARY KEY (run, name)

constraint tokens_pkey of outlast.tokens: PRIMARY KEY (hash)

constraint turns_pkey of outlast.turns: PRIMARY KEY (run, seq)

constraint unmerged_pkey of outlast.unmerged: PRIMARY KEY (id)

CREATE UNIQUE INDEX chunk_leftovers_pkey ON outlast.chunk_leftovers USING btree (run)

CREATE UNIQUE INDEX chunks_pkey ON outlast.chunks USING btree (run, stream, first)

CREATE UNIQUE INDEX counts_pkey ON outlast.counts USING btree (status, slot)

CREATE UNIQUE INDEX heartbeats_pkey ON outlast.heartbeats USING btree (run, op)

CREATE UNIQUE INDEX inbox_id ON outlast.inbox USING btree (run, id)

CREATE UNIQUE INDEX inbox_pkey ON outlast.inbox USING btree (run, "position")

CREATE UNIQUE INDEX leftovers_pkey ON outlast.leftovers USING btree (run)

CREATE UNIQUE INDEX migrations_pkey ON outlast.migrations USING btree (version)

CREATE UNIQUE INDEX record_counts_pkey ON outlast.record_counts USING btree (space)

CREATE UNIQUE INDEX records_pkey ON outlast.records USING btree (space, id)

CREATE INDEX replies_by_time ON outlast.replies USING btree (at)

CREATE UNIQUE INDEX replies_pkey ON outlast.replies USING btree (run, message)

CREATE INDEX runs_by_fingerprint ON outlast.runs USING btree (fingerprint, ended_at, id) WHERE (fingerprint IS NOT NULL)

CREATE INDEX runs_by_parent ON outlast.runs USING btree (parent, id) WHERE (parent IS NOT NULL)

CREATE INDEX runs_by_root ON outlast.runs USING btree (root, id) WHERE (root <> parent)

CREATE INDEX runs_by_status ON outlast.runs USING btree (status, id)

CREATE INDEX runs_by_workflow ON outlast.runs USING btree (workflow, id)

CREATE INDEX runs_cancelling ON outlast.runs USING btree (id) WHERE (cancel_requested AND (ended_at IS NULL))

CREATE INDEX runs_ends_without_code ON outlast.runs USING btree (ready_at, id) WHERE ((ready_at IS NOT NULL) AND ends_without_code)

CREATE INDEX runs_failed ON outlast.runs USING btree (ended_at, id) WHERE (fingerprint IS NOT NULL)

CREATE INDEX runs_held ON outlast.runs USING btree (owner, id) WHERE (owner IS NOT NULL)

CREATE UNIQUE INDEX runs_key ON outlast.runs USING btree (key) WHERE (key IS NOT NULL)

CREATE INDEX runs_marked ON outlast.runs USING btree (id, marks) WHERE (marks <> 0)

CREATE INDEX runs_overdue ON outlast.runs USING btree (deadline, id) WHERE ((deadline IS NOT NULL) AND (owner IS NULL))

CREATE UNIQUE INDEX runs_pkey ON outlast.runs USING btree (id)

CREATE INDEX runs_ready ON outlast.runs USING btree (queue, workflow, version, format, failed_builds, crash_class, priority, ready_at, id) WHERE ((ready_at IS NOT NULL) AND (NOT ends_without_code))

CREATE INDEX runs_retrying ON outlast.runs USING btree (id) WHERE retrying

CREATE INDEX runs_unread ON outlast.runs USING btree (owner, id) WHERE ((owner IS NOT NULL) AND (sent > consumed))

CREATE UNIQUE INDEX sessions_pkey ON outlast.sessions USING btree (id)

CREATE UNIQUE INDEX settings_pkey ON outlast.settings USING btree (one)

CREATE UNIQUE INDEX skew_pkey ON outlast.skew USING btree (one)

CREATE UNIQUE INDEX states_pkey ON outlast.states USING btree (run)

CREATE UNIQUE INDEX stream_writers_pkey ON outlast.stream_writers USING btree (run, op, stream)

CREATE UNIQUE INDEX streams_pkey ON outlast.streams USING btree (run, name)

CREATE INDEX tags_by_value ON outlast.tags USING btree (name, value, run)

CREATE UNIQUE INDEX tags_pkey ON outlast.tags USING btree (run, name)

CREATE INDEX tokens_by_run ON outlast.tokens USING btree (run)

CREATE INDEX tokens_kept ON outlast.tokens USING btree (kept_until) WHERE (kept_until IS NOT NULL)

CREATE UNIQUE INDEX tokens_pkey ON outlast.tokens USING btree (hash)

CREATE UNIQUE INDEX turns_pkey ON outlast.turns USING btree (run, seq)

CREATE UNIQUE INDEX unmerged_pkey ON outlast.unmerged USING btree (id)

view events:  SELECT turns.run,
    ((turns.seq + event.nth) - 1) AS seq,
    turns.at,
    (event.value ->> 'kind'::text) AS kind,
    ((event.value ->> 'op'::text))::bigint AS op,
    event.value AS body
   FROM outlast.turns,
    LATERAL json_array_elements((replace(turns.events, '\u0000'::text, '\ufffd'::text))::json) WITH ORDINALITY event(value, nth);

CREATE OR REPLACE FUNCTION outlast.append_chunks_v3(now_ bigint, run_ text, stream_ text, op_ bigint, attempt_ text, new_ bigint, keep_ bigint, closer_ text, pack_ text, limit_ bigint, OUT is_closed boolean, OUT dropped bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
DECLARE
    row_ record;
    kept_ bigint;
    stored_ bigint := new_;
BEGIN
    SELECT s.first, s.next, s.closed_by, s.keep_last INTO row_
    FROM "outlast".streams s WHERE s.run = run_ AND s.name = stream_ FOR UPDATE;
    is_closed := row_.closed_by IS NOT NULL;
    dropped := 0;
    IF is_closed THEN
        UPDATE "outlast".streams s SET late = s.late + new_ WHERE s.run = run_ AND s.name = stream_ AND new_ > 0;
        RETURN;
    END IF;
    kept_ := least(row_.next - row_.first + new_, coalesce(keep_, row_.keep_last));
    IF kept_ > limit_ THEN
        dropped := new_;
        stored_ := 0;
    END IF;
    IF stored_ > 0 THEN
        INSERT INTO "outlast".chunks (run, stream, first, next, at, op, attempt, entries)
        VALUES (run_, stream_, row_.next, row_.next + stored_, now_, op_, attempt_, pack_);
    END IF;
    UPDATE "outlast".streams s SET next = s.next + stored_, keep_last = coalesce(keep_, s.keep_last),
        dropped = s.dropped + append_chunks_v3.dropped, closed_by = closer_
    WHERE s.run = run_ AND s.name = stream_;
    IF coalesce(keep_, row_.keep_last) IS NOT NULL THEN
        PERFORM "outlast".trim_stream_v3(run_, stream_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.base32_v2(bits_ numeric)
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

CREATE OR REPLACE FUNCTION outlast.base32_v3(bits_ numeric)
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

CREATE OR REPLACE FUNCTION outlast.beat_v2(at_ bigint, id_ text, report_ text, details_ json, bodies_ text[], raws_ bytea[])
 RETURNS TABLE(held bigint, moment bigint, rules integer)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    rules_ integer;
BEGIN
    UPDATE "outlast".sessions s SET beat_at = now_, boot = "outlast".boot_v2(), lock_free_since = NULL,
        expires_at = least(now_, 9223372036854775807 - s.time) + s.time, report = report_
    WHERE s.id = id_ AND s.ended_at IS NULL
    RETURNING s.rules INTO rules_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF json_array_length(details_) > 0 THEN
        PERFORM "outlast".put_details_v2(id_, details_, bodies_, raws_);
    END IF;
    PERFORM "outlast".merge_v2();
    rules_ := coalesce((SELECT g.rules FROM "outlast".settings g), rules_);
    RETURN QUERY SELECT count(*), now_, rules_ FROM "outlast".runs r WHERE r.owner = id_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.beat_v3(at_ bigint, id_ text, report_ text, details_ json, bodies_ text[], raws_ bytea[])
 RETURNS TABLE(held bigint, moment bigint, rules integer)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    rules_ integer;
BEGIN
    UPDATE "outlast".sessions s SET beat_at = now_, boot = "outlast".boot_v3(), lock_free_since = NULL,
        expires_at = least(now_, 9223372036854775807 - s.time) + s.time, report = report_
    WHERE s.id = id_ AND s.ended_at IS NULL
    RETURNING s.rules INTO rules_;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF json_array_length(details_) > 0 THEN
        PERFORM "outlast".put_details_v3(id_, details_, bodies_, raws_);
    END IF;
    PERFORM "outlast".merge_v3();
    rules_ := coalesce((SELECT g.rules FROM "outlast".settings g), rules_);
    RETURN QUERY SELECT count(*), now_, rules_ FROM "outlast".runs r WHERE r.owner = id_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.boot_v2()
 RETURNS bigint
 LANGUAGE sql
AS $function$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + clock_offset FROM "outlast".settings
$function$

CREATE OR REPLACE FUNCTION outlast.boot_v3()
 RETURNS bigint
 LANGUAGE sql
AS $function$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint + clock_offset FROM "outlast".settings
$function$

CREATE OR REPLACE FUNCTION outlast.check_payload_v2(payload_ text)
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

CREATE OR REPLACE FUNCTION outlast.check_payload_v3(payload_ text)
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

CREATE OR REPLACE FUNCTION outlast.check_rules_v2(rules_ integer)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    known_ integer := (SELECT s.rules FROM "outlast".settings s);
BEGIN
    IF known_ < rules_ THEN
        RAISE EXCEPTION 'a joined worker knows the rules up to % only', known_ USING ERRCODE = 'OL001', DETAIL = known_::text;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.check_rules_v3(rules_ integer)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    known_ integer := (SELECT s.rules FROM "outlast".settings s);
BEGIN
    IF known_ < rules_ THEN
        RAISE EXCEPTION 'a joined worker knows the rules up to % only', known_ USING ERRCODE = 'OL001', DETAIL = known_::text;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.choose_overdue_v2(until_ bigint, limit_ integer, format_ integer, rooms_ integer[], chosen_ text[], OUT ids text[], OUT rooms integer[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    late_ record;
    left_ integer;
BEGIN
    ids := chosen_; rooms := rooms_;
    FOR late_ IN
        SELECT r.id, r.crash_class FROM "outlast".runs r
        WHERE r.deadline <= until_ AND r.owner IS NULL AND r.format <= format_ AND r.id <> ALL (chosen_)
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
        ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN late_.crash_class > 0 AND rooms[late_.crash_class] <= 0;
        IF late_.crash_class > 0 THEN
            left_ := rooms[late_.crash_class] - 1;
            rooms := array_fill(0, ARRAY[cardinality(rooms_)]);
            rooms[late_.crash_class] := left_;
        END IF;
        ids := array_append(ids, late_.id);
        EXIT WHEN cardinality(ids) >= limit_;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.choose_overdue_v3(until_ bigint, limit_ integer, format_ integer, rooms_ integer[], chosen_ text[], OUT ids text[], OUT rooms integer[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    late_ record;
    left_ integer;
BEGIN
    ids := chosen_; rooms := rooms_;
    FOR late_ IN
        SELECT r.id, r.crash_class FROM "outlast".runs r
        WHERE r.deadline <= until_ AND r.owner IS NULL AND r.format <= format_ AND r.id <> ALL (chosen_)
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
        ORDER BY r.deadline, r.id LIMIT limit_ + 50 FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        CONTINUE WHEN late_.crash_class > 0 AND rooms[late_.crash_class] <= 0;
        IF late_.crash_class > 0 THEN
            left_ := rooms[late_.crash_class] - 1;
            rooms := array_fill(0, ARRAY[cardinality(rooms_)]);
            rooms[late_.crash_class] := left_;
        END IF;
        ids := array_append(ids, late_.id);
        EXIT WHEN cardinality(ids) >= limit_;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.choose_v2(session_ text, now_ bigint, limit_ integer, format_ integer, rooms_ integer[], is_trial_ boolean, preference_ bigint, priority_age_ bigint, lines_ outlast.line_v2[], has_codeless_ boolean, OUT ids text[], OUT rooms integer[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    line_ "outlast".line_v2;
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
        found_ := "outlast".ready_v2(session_, now_,
            CASE WHEN line_.crash_class = 0 THEN limit_ ELSE least(limit_, rooms_[line_.crash_class]) END, preference_,
            priority_age_, line_);
        CONTINUE WHEN found_.ids IS NULL;
        ids := ids || found_.ids; ranks_ := ranks_ || found_.ranks;
        classes_ := classes_ || array_fill(line_.crash_class::integer, ARRAY[cardinality(found_.ids)]);
    END LOOP;
    IF has_codeless_ THEN
        FOR found_ IN
            SELECT r.id::text, r.ready_at, r.crash_class FROM "outlast".runs r
            WHERE r.ends_without_code AND r.ready_at IS NOT NULL AND r.ready_at <= now_ AND r.format <= format_
                AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
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
$function$

CREATE OR REPLACE FUNCTION outlast.choose_v3(session_ text, now_ bigint, limit_ integer, format_ integer, rooms_ integer[], is_trial_ boolean, preference_ bigint, priority_age_ bigint, lines_ outlast.line_v3[], has_codeless_ boolean, OUT ids text[], OUT rooms integer[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    line_ "outlast".line_v3;
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
        found_ := "outlast".ready_v3(session_, now_,
            CASE WHEN line_.crash_class = 0 THEN limit_ ELSE least(limit_, rooms_[line_.crash_class]) END, preference_,
            priority_age_, line_);
        CONTINUE WHEN found_.ids IS NULL;
        ids := ids || found_.ids; ranks_ := ranks_ || found_.ranks;
        classes_ := classes_ || array_fill(line_.crash_class::integer, ARRAY[cardinality(found_.ids)]);
    END LOOP;
    IF has_codeless_ THEN
        FOR found_ IN
            SELECT r.id::text, r.ready_at, r.crash_class FROM "outlast".runs r
            WHERE r.ends_without_code AND r.ready_at IS NOT NULL AND r.ready_at <= now_ AND r.format <= format_
                AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
                AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                    OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
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
$function$

CREATE OR REPLACE FUNCTION outlast.claim_one_v2(session_ text, at_ bigint, run_ text, queues_ text[], workflows_ text[], versions_ bigint[], format_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ AND r.status = 'pending' AND r.ready_at <= now_
        AND r.queue = ANY (queues_) AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
            WHERE c.workflow = r.workflow AND c.version = r.version);
    IF FOUND THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        -- Another session has claimed it, or this one may not. As in `claim`, a claim that finds nothing writes nothing.
        run_ := NULL;
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF run_ IS NOT NULL THEN
        SELECT r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, r.crashes, r.kept, r.deadline, r.stuck_reason, r.stuck_message, r.stuck_build, r.failed_builds, r.failed_at
        INTO run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at
        FROM "outlast".runs r
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
            UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                ready_at = NULL
            WHERE r.id = run_;
            PERFORM "outlast".count_move_v2('pending', 'running');
            SELECT t.build, t.events INTO first_build, first_events
            FROM "outlast".turns t WHERE t.run = run_ AND t.seq = 0;
            code := 'given'; is_known := false; has_details := false;
            is_overdue := false;
            RETURN NEXT;
        END IF;
    END IF;
    code := 'now'; run := NULL; is_overdue := false; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.claim_one_v3(session_ text, at_ bigint, run_ text, queues_ text[], workflows_ text[], versions_ bigint[], format_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint, replay_from bigint, continued bigint, marks integer, retrying boolean, failure text, fingerprint bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ AND r.status = 'pending' AND r.ready_at <= now_
        AND r.queue = ANY (queues_) AND EXISTS (SELECT 1 FROM unnest(workflows_, versions_) AS c (workflow, version)
            WHERE c.workflow = r.workflow AND c.version = r.version);
    IF FOUND THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        -- Another session has claimed it, or this one may not. As in `claim`, a claim that finds nothing writes nothing.
        run_ := NULL;
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF run_ IS NOT NULL THEN
        SELECT r.id, r.workflow, r.version, r.turn, r.next_seq, r.turn_at, r.sent, r.consumed, r.crashes, r.kept, r.deadline, r.stuck_reason, r.stuck_message, r.stuck_build, r.failed_builds, r.failed_at, r.replay_from, r.continued, r.marks, r.retrying, r.failure, r.fingerprint
        INTO run, workflow, version, turn, seq, turn_at, sent, consumed, crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at, replay_from, continued, marks, retrying, failure, fingerprint
        FROM "outlast".runs r
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
            UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL,
                ready_at = NULL
            WHERE r.id = run_;
            PERFORM "outlast".count_move_v3('pending', 'running');
            SELECT t.build, t.events INTO first_build, first_events
            FROM "outlast".turns t WHERE t.run = run_ AND t.seq = 0;
            code := 'given'; is_known := false; has_details := false;
            is_overdue := false;
            RETURN NEXT;
        END IF;
    END IF;
    code := 'now'; run := NULL; is_overdue := false; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.claim_v2(session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, rooms_ integer[], is_trial_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint, priority_age_ bigint)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    lines_ "outlast".line_v2[] := "outlast".lines_v2(queues_, workflows_, versions_, build_, format_, rooms_);
    has_codeless_ boolean;
    has_unread_ boolean;
    has_ready_ boolean;
    has_overdue_ boolean;
    chosen_ record;
    line_ "outlast".line_v2;
    ids_ text[] := '{}';
    ready_ integer := 0;
    deadline_ bigint;
    due_ bigint;
BEGIN
    -- Each is sorted as its index. Otherwise Postgres may scan the whole table if it has no statistics.
    SELECT (SELECT r.ready_at FROM "outlast".runs r WHERE r.ready_at IS NOT NULL AND r.ends_without_code
            ORDER BY r.ready_at, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.id FROM "outlast".runs r WHERE r.owner = session_ AND r.sent > r.consumed
            ORDER BY r.owner, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.deadline FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline IS NOT NULL
            ORDER BY r.deadline LIMIT 1)
    INTO has_codeless_, has_unread_, deadline_;
    has_overdue_ := coalesce(deadline_ <= now_ - grace_ AND overdue_from_ <= now_, false);
    has_ready_ := has_codeless_ OR has_overdue_;
    FOREACH line_ IN ARRAY lines_ LOOP
        EXIT WHEN has_ready_;
        has_ready_ := line_.head <= now_;
    END LOOP;
    IF has_ready_ AND limit_ > 0 THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF has_ready_ AND limit_ > 0 THEN
        chosen_ := "outlast".choose_v2(session_, now_, limit_, format_, rooms_, is_trial_, preference_, priority_age_,
            lines_, has_codeless_);
        ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        ready_ := cardinality(ids_);
        IF has_overdue_ AND ready_ < limit_ AND NOT (is_trial_ AND ready_ = 1 AND 0 = ALL (rooms_)) THEN
            chosen_ := "outlast".choose_overdue_v2(now_ - grace_, limit_, format_, rooms_, ids_);
            ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        END IF;
        IF cardinality(ids_) > 0 THEN
            RETURN QUERY SELECT g.* FROM "outlast".give_v2(session_, now_, ids_, ready_) g;
        END IF;
    END IF;
    IF cardinality(lines_) > 0 OR has_codeless_ THEN
        due_ := "outlast".next_due_of_v2(session_, now_, limit_ > ready_, format_, rooms_, preference_, lines_, has_codeless_);
    END IF;
    IF has_overdue_ AND cardinality(ids_) < limit_ THEN
        -- Another transaction has locked the remaining ones, perhaps for a moment only. Try again soon.
        PERFORM 1 FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline <= now_ - grace_ AND r.format <= format_
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
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
    code := 'now'; next_deadline := deadline_; is_overdue := has_unread_; moment := now_; next_due := due_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.claim_v3(session_ text, at_ bigint, limit_ integer, queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, rooms_ integer[], is_trial_ boolean, overdue_from_ bigint, grace_ bigint, preference_ bigint, priority_age_ bigint)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint, replay_from bigint, continued bigint, marks integer, retrying boolean, failure text, fingerprint bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    lines_ "outlast".line_v3[] := "outlast".lines_v3(queues_, workflows_, versions_, build_, format_, rooms_);
    has_codeless_ boolean;
    has_unread_ boolean;
    has_ready_ boolean;
    has_overdue_ boolean;
    chosen_ record;
    line_ "outlast".line_v3;
    ids_ text[] := '{}';
    ready_ integer := 0;
    deadline_ bigint;
    due_ bigint;
BEGIN
    -- Each is sorted as its index. Otherwise Postgres may scan the whole table if it has no statistics.
    SELECT (SELECT r.ready_at FROM "outlast".runs r WHERE r.ready_at IS NOT NULL AND r.ends_without_code
            ORDER BY r.ready_at, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.id FROM "outlast".runs r WHERE r.owner = session_ AND r.sent > r.consumed
            ORDER BY r.owner, r.id LIMIT 1) IS NOT NULL,
        (SELECT r.deadline FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline IS NOT NULL
            ORDER BY r.deadline LIMIT 1)
    INTO has_codeless_, has_unread_, deadline_;
    has_overdue_ := coalesce(deadline_ <= now_ - grace_ AND overdue_from_ <= now_, false);
    has_ready_ := has_codeless_ OR has_overdue_;
    FOREACH line_ IN ARRAY lines_ LOOP
        EXIT WHEN has_ready_;
        has_ready_ := line_.head <= now_;
    END LOOP;
    IF has_ready_ AND limit_ > 0 THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL;
    END IF;
    IF NOT FOUND THEN
        code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    IF has_ready_ AND limit_ > 0 THEN
        chosen_ := "outlast".choose_v3(session_, now_, limit_, format_, rooms_, is_trial_, preference_, priority_age_,
            lines_, has_codeless_);
        ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        ready_ := cardinality(ids_);
        IF has_overdue_ AND ready_ < limit_ AND NOT (is_trial_ AND ready_ = 1 AND 0 = ALL (rooms_)) THEN
            chosen_ := "outlast".choose_overdue_v3(now_ - grace_, limit_, format_, rooms_, ids_);
            ids_ := chosen_.ids; rooms_ := chosen_.rooms;
        END IF;
        IF cardinality(ids_) > 0 THEN
            RETURN QUERY SELECT g.* FROM "outlast".give_v3(session_, now_, ids_, ready_) g;
        END IF;
    END IF;
    IF cardinality(lines_) > 0 OR has_codeless_ THEN
        due_ := "outlast".next_due_of_v3(session_, now_, limit_ > ready_, format_, rooms_, preference_, lines_, has_codeless_);
    END IF;
    IF has_overdue_ AND cardinality(ids_) < limit_ THEN
        -- Another transaction has locked the remaining ones, perhaps for a moment only. Try again soon.
        PERFORM 1 FROM "outlast".runs r WHERE r.owner IS NULL AND r.deadline <= now_ - grace_ AND r.format <= format_
            AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0)
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
    code := 'now'; next_deadline := deadline_; is_overdue := has_unread_; moment := now_; next_due := due_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.clock_v2()
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT s.clock_offset FROM "outlast".settings s);
END
$function$

CREATE OR REPLACE FUNCTION outlast.clock_v3()
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (SELECT s.clock_offset FROM "outlast".settings s);
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_one_v2(session_ text, at_ bigint, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint, build_ text, events_ text, consumed_ bigint, end_ text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET lock_timeout TO '50'
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := 0;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF end_ IS NOT NULL THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Another transaction has locked the row, or the run does not exist.
            RETURN NULL;
        END IF;
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
    IF end_ IS NOT NULL THEN
        now_ := coalesce(at_, "outlast".clock_v2());
        UPDATE "outlast".runs r SET status = end_, owner = NULL, preferred = NULL, turn = id_, next_seq = next_seq_,
            turn_at = turn_at_, updated_at = now_, ended_at = now_, wake_at = NULL, waits = '[]', ready_at = NULL,
            crashes = 0, deadline = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL, failed_builds = '', failed_at = 0
        WHERE r.id = run_;
        PERFORM "outlast".count_move_v2('running', end_);
    END IF;
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_one_v3(session_ text, at_ bigint, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint, build_ text, events_ text, consumed_ bigint, end_ text)
 RETURNS bigint
 LANGUAGE plpgsql
 SET lock_timeout TO '50'
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := 0;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF end_ IS NOT NULL THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Another transaction has locked the row, or the run does not exist.
            RETURN NULL;
        END IF;
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
    IF end_ IS NOT NULL THEN
        now_ := coalesce(at_, "outlast".clock_v3());
        UPDATE "outlast".runs r SET status = end_, owner = NULL, preferred = NULL, turn = id_, next_seq = next_seq_,
            turn_at = turn_at_, updated_at = now_, ended_at = now_, wake_at = NULL, waits = '[]', ready_at = NULL,
            marks = r.marks & ~1,
            crashes = 0, deadline = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL, failed_builds = '', failed_at = 0, retrying = false, failure = NULL, fingerprint = NULL
        WHERE r.id = run_;
        PERFORM "outlast".count_move_v3('running', end_);
    END IF;
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_tokens_v3(session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], writes_ json, packs_ text[], states_ json, state_bodies_ text[], state_raws_ bytea[], limits_ bigint[], freed_ json, taken_ json, token_bodies_ text[], token_raws_ bytea[], replies_ json, reply_bodies_ text[], reply_raws_ bytea[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    answer_ record;
    now_ bigint;
    refused_ integer[] := '{}';
BEGIN
    FOR answer_ IN SELECT c.nth, c.code, c.detail, c.moment, c.rings FROM "outlast".commit_writes_v3(session_, at_, how_,
        locked_, turns_, events_, children_, child_events_, messages_, bodies_, raws_, writes_, packs_, states_,
        state_bodies_, state_raws_, limits_) c
    LOOP
        nth := answer_.nth; code := answer_.code; detail := answer_.detail; moment := answer_.moment;
        -- A run that gets an answer may be ready for another worker.
        rings := answer_.rings OR json_array_length(taken_) > 0;
        RETURN NEXT;
        IF answer_.code = 'now' THEN
            now_ := answer_.moment;
        ELSE
            refused_ := refused_ || answer_.nth;
        END IF;
    END LOOP;
    -- Without a time nothing was committed.
    IF now_ IS NOT NULL THEN
        PERFORM "outlast".put_tokens_v3(now_, refused_, freed_, taken_, token_bodies_, token_raws_);
        PERFORM "outlast".put_replies_v3(now_, refused_, replies_, reply_bodies_, reply_raws_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_v2(session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean)
 LANGUAGE plpgsql
AS $function$
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
        PERFORM "outlast".lock_runs_v2(locked_, false);
        nth := 0; code := 'free';
        RETURN NEXT;
        RETURN;
    END IF;
    IF is_exclusive_ THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR UPDATE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    blocked_ := "outlast".lock_runs_v2(locked_, is_exclusive_ OR coalesce((how_ ->> 'skips')::boolean, false));
    left_out_ := CASE WHEN cardinality(blocked_) = 0 THEN '{}'
        ELSE "outlast".turns_of_v2(blocked_, turns_, messages_) END;
    now_ := coalesce(at_, "outlast".clock_v2());
    PERFORM "outlast".free_keys_v2(now_, turns_);
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
                    WHEN tip.turn = a.id AND EXISTS (SELECT 1 FROM "outlast".turns f
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
            WHEN a.fired IS NOT NULL AND EXISTS (SELECT 1 FROM "outlast".inbox i
                WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired) THEN 'missed'
            ELSE 'ok' END AS code
        FROM asked a
        LEFT JOIN "outlast".runs r ON r.id = a.run
        LEFT JOIN LATERAL (SELECT o.id, o.workflow, o.key_digest FROM "outlast".runs o WHERE o.key = a.key) k ON true
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = a.run
            ORDER BY t.seq DESC LIMIT 1) last ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), born AS (
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, key, key_digest, status, owner, preferred,
            turn, next_seq, turn_at, created_at, updated_at, ended_at, wake_at, waits, ready_at, cancel_requested, parent,
            parent_op, parent_awaits, root, crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at)
        SELECT j.run, n.workflow, n.version, greatest(n.format, j.format), n.queue, n.priority, j.key, j.digest, w.status,
            CASE WHEN w.held THEN session_ END, CASE WHEN w.preferred THEN session_ END, j.id, j.next, j.at, now_, now_,
            CASE WHEN w.status IN ('completed', 'failed', 'cancelled') THEN now_ END, w.wake_at, coalesce(w.waits, '[]'),
            least(w.read_at, now_ + w.read_after), coalesce(w.cancels, false), n.parent, n.parent_op, n.awaits, n.root,
            coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, w.stuck_reason, w.stuck_message, w.stuck_build, coalesce(w.failed_builds, ''), coalesce(w.failed_at, 0)
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j.start) AS n (workflow text, version bigint, format integer, queue text,
            priority smallint, parent text, parent_op bigint, awaits boolean, root text)
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, cancels boolean, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint)
        WHERE j.code = 'ok' AND j."from" IS NULL ORDER BY j.key COLLATE "C" NULLS FIRST, j.nth
        ON CONFLICT DO NOTHING
        RETURNING status, ready_at, deadline, owner
    ), added AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT j.run, j.seq, j.next, j.id, j.at, j.build, j.events
        FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), written AS (
        UPDATE "outlast".runs r SET status = w.status, owner = CASE WHEN w.held THEN session_ END,
            preferred = CASE WHEN w.preferred THEN session_ END, turn = j.id, next_seq = j.next, turn_at = j.at,
            updated_at = CASE WHEN w.held THEN r.updated_at ELSE now_ END,
            ended_at = CASE WHEN w.status IN ('completed', 'failed', 'cancelled') THEN now_ END,
            wake_at = w.wake_at, waits = coalesce(w.waits, '[]'),
            -- Waiting and checking for messages are one statement: with an unread message the run is ready immediately.
            ready_at = CASE WHEN r.last_terminate > coalesce(j.consumed, r.consumed)
                    OR j.next <= 1 AND r.last_cancel > coalesce(j.consumed, r.consumed)
                THEN least(w.ending_at, now_ + w.ending_after)
                WHEN r.sent > coalesce(j.consumed, r.consumed) THEN least(w.unread_at, now_ + w.unread_after)
                ELSE least(w.read_at, now_ + w.read_after) END,
            consumed = coalesce(j.consumed, r.consumed),
            cancel_requested = r.cancel_requested OR coalesce(w.cancels, false),
            format = greatest(r.format, j.format), (crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at) = ROW(coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, w.stuck_reason, w.stuck_message, w.stuck_build, coalesce(w.failed_builds, ''), coalesce(w.failed_at, 0))
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, unread_at bigint, unread_after bigint, ending_at bigint,
            ending_after bigint, cancels boolean, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint)
        WHERE r.id = j.run AND j.code = 'ok' AND j."from" IS NOT NULL
            AND (j.writes OR j.consumed > j.had_consumed OR j.format > r.format)
        RETURNING r.owner, r.status, r.ready_at, r.deadline
    ), blanked AS (
        UPDATE "outlast".inbox i SET body = NULL, raw = NULL, headers = NULL
        FROM judged j
        WHERE j.code = 'ok' AND j.consumed > j.had_consumed
            AND i.run = j.run AND i.position > j.had_consumed AND i.position <= j.consumed
            AND coalesce(pg_column_size(i.body), 0) + coalesce(pg_column_size(i.raw), 0)
                + coalesce(pg_column_size(i.headers), 0) > 512
    ), tagged AS (
        INSERT INTO "outlast".tags (run, name, value)
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
        sent_ := "outlast".deliver_v2(now_, children_, child_events_, messages_, bodies_, raws_, coalesce(done_.nths, '{}'));
        done_.statuses := done_.statuses || sent_.statuses;
        done_.changes := done_.changes || sent_.changes;
        done_.lowest := least(done_.lowest, sent_.lowest);
        done_.highest := greatest(done_.highest, sent_.highest);
        done_.rings := true;
    END IF;
    -- Lock these rows last, after everything that this statement may wait for: other transactions need them too.
    IF done_.lowest IS NOT NULL THEN
        PERFORM "outlast".widen_v2(done_.lowest, done_.highest);
    END IF;
    IF done_.statuses IS NOT NULL THEN
        PERFORM "outlast".count_v2(done_.statuses, done_.changes);
    END IF;
    IF done_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.detail, NULL::bigint, NULL::boolean
        FROM unnest(done_.nths, done_.codes, done_.details) AS t (nth, code, detail) WHERE t.code <> 'done';
    END IF;
    nth := 0; code := 'now'; detail := NULL; moment := now_; rings := coalesce(done_.rings, false);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_v3(session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean)
 LANGUAGE plpgsql
AS $function$
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
        PERFORM "outlast".lock_runs_v3(locked_, false);
        nth := 0; code := 'free';
        RETURN NEXT;
        RETURN;
    END IF;
    IF is_exclusive_ THEN
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR UPDATE;
    ELSE
        PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    blocked_ := "outlast".lock_runs_v3(locked_, is_exclusive_ OR coalesce((how_ ->> 'skips')::boolean, false));
    left_out_ := CASE WHEN cardinality(blocked_) = 0 THEN '{}'
        ELSE "outlast".turns_of_v3(blocked_, turns_, messages_) END;
    now_ := coalesce(at_, "outlast".clock_v3());
    PERFORM "outlast".free_keys_v3(now_, turns_);
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
                    WHEN tip.turn = a.id AND EXISTS (SELECT 1 FROM "outlast".turns f
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
            WHEN a.fired IS NOT NULL AND EXISTS (SELECT 1 FROM "outlast".inbox i
                WHERE i.run = a.run AND i.position > a.consumed AND i.at <= a.fired) THEN 'missed'
            ELSE 'ok' END AS code
        FROM asked a
        LEFT JOIN "outlast".runs r ON r.id = a.run
        LEFT JOIN LATERAL (SELECT o.id, o.workflow, o.key_digest FROM "outlast".runs o WHERE o.key = a.key) k ON true
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM "outlast".turns t WHERE t.run = a.run
            ORDER BY t.seq DESC LIMIT 1) last ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), born AS (
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, key, key_digest, status, owner, preferred,
            turn, next_seq, turn_at, created_at, updated_at, ended_at, wake_at, waits, ready_at, cancel_requested, parent,
            parent_op, parent_awaits, root, marks, crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at, replay_from, continued, retrying, failure, fingerprint)
        SELECT j.run, n.workflow, coalesce(w.version, n.version), greatest(n.format, j.format), n.queue, n.priority, j.key,
            j.digest, w.status,
            CASE WHEN w.held THEN session_ END, CASE WHEN w.preferred THEN session_ END, j.id, j.next, j.at, now_, now_,
            CASE WHEN w.status IN ('completed', 'failed', 'cancelled') THEN now_ END, w.wake_at, coalesce(w.waits, '[]'),
            least(w.read_at, now_ + w.read_after), coalesce(w.cancels, false), n.parent, n.parent_op, n.awaits, n.root,
            coalesce(w.sets_marks, 0), coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, w.stuck_reason, w.stuck_message, w.stuck_build, coalesce(w.failed_builds, ''), coalesce(w.failed_at, 0), coalesce(w.replay_from, 0), coalesce(w.continued, 0), coalesce(w.retrying, false), w.failure, w.fingerprint
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j.start) AS n (workflow text, version bigint, format integer, queue text,
            priority smallint, parent text, parent_op bigint, awaits boolean, root text)
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, cancels boolean, sets_marks integer, version bigint,
            crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint, replay_from bigint, continued bigint, marks integer, retrying boolean, failure text, fingerprint bigint)
        WHERE j.code = 'ok' AND j."from" IS NULL ORDER BY j.key COLLATE "C" NULLS FIRST, j.nth
        ON CONFLICT DO NOTHING
        RETURNING status, ready_at, deadline, owner
    ), added AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT j.run, j.seq, j.next, j.id, j.at, j.build, j.events
        FROM judged j WHERE j.code = 'ok' AND j.events IS NOT NULL
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), written AS (
        UPDATE "outlast".runs r SET status = w.status, owner = CASE WHEN w.held THEN session_ END,
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
            (crashes, kept, deadline, stuck_reason, stuck_message, stuck_build, failed_builds, failed_at, replay_from, continued, retrying, failure, fingerprint) = ROW(coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, w.stuck_reason, w.stuck_message, w.stuck_build, coalesce(w.failed_builds, ''), coalesce(w.failed_at, 0), coalesce(w.replay_from, 0), coalesce(w.continued, 0), coalesce(w.retrying, false), w.failure, w.fingerprint)
        FROM judged j
        CROSS JOIN LATERAL json_to_record(j."row") AS w (status text, held boolean, preferred boolean, wake_at bigint,
            waits text, read_at bigint, read_after bigint, unread_at bigint, unread_after bigint, ending_at bigint,
            ending_after bigint, paused_at bigint, cancels boolean, clears_marks integer, sets_marks integer,
            version bigint, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint, replay_from bigint, continued bigint, marks integer, retrying boolean, failure text, fingerprint bigint)
        WHERE r.id = j.run AND j.code = 'ok' AND j."from" IS NOT NULL
            AND (j.writes OR j.consumed > j.had_consumed OR j.format > r.format)
        RETURNING r.owner, r.status, r.ready_at, r.deadline
    ), blanked AS (
        UPDATE "outlast".inbox i SET body = NULL, raw = NULL, headers = NULL
        FROM judged j
        WHERE j.code = 'ok' AND j.consumed > j.had_consumed
            AND i.run = j.run AND i.position > j.had_consumed AND i.position <= j.consumed
            AND coalesce(pg_column_size(i.body), 0) + coalesce(pg_column_size(i.raw), 0)
                + coalesce(pg_column_size(i.headers), 0) > 512
    ), tagged AS (
        INSERT INTO "outlast".tags (run, name, value)
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
        sent_ := "outlast".deliver_v3(now_, children_, child_events_, messages_, bodies_, raws_, coalesce(done_.nths, '{}'));
        done_.statuses := done_.statuses || sent_.statuses;
        done_.changes := done_.changes || sent_.changes;
        done_.lowest := least(done_.lowest, sent_.lowest);
        done_.highest := greatest(done_.highest, sent_.highest);
        done_.rings := true;
    END IF;
    -- Lock these rows last, after everything that this statement may wait for: other transactions need them too.
    IF done_.lowest IS NOT NULL THEN
        PERFORM "outlast".widen_v3(done_.lowest, done_.highest);
    END IF;
    IF done_.statuses IS NOT NULL THEN
        PERFORM "outlast".count_v3(done_.statuses, done_.changes);
    END IF;
    IF done_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.detail, NULL::bigint, NULL::boolean
        FROM unnest(done_.nths, done_.codes, done_.details) AS t (nth, code, detail) WHERE t.code <> 'done';
    END IF;
    nth := 0; code := 'now'; detail := NULL; moment := now_; rings := coalesce(done_.rings, false);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.commit_writes_v3(session_ text, at_ bigint, how_ json, locked_ text[], turns_ json, events_ text[], children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], writes_ json, packs_ text[], states_ json, state_bodies_ text[], state_raws_ bytea[], limits_ bigint[])
 RETURNS TABLE(nth integer, code text, detail text, moment bigint, rings boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    answer_ record;
    now_ bigint;
    refused_ integer[] := '{}';
BEGIN
    FOR answer_ IN SELECT c.nth, c.code, c.detail, c.moment, c.rings FROM "outlast".commit_v3(session_, at_, how_, locked_,
        turns_, events_, children_, child_events_, messages_, bodies_, raws_) c
    LOOP
        nth := answer_.nth; code := answer_.code; detail := answer_.detail; moment := answer_.moment;
        rings := answer_.rings;
        RETURN NEXT;
        IF answer_.code = 'now' THEN
            now_ := answer_.moment;
        ELSE
            refused_ := refused_ || answer_.nth;
        END IF;
    END LOOP;
    -- Without a time nothing was committed.
    IF now_ IS NOT NULL THEN
        PERFORM "outlast".put_workflow_writes_v3(now_, refused_, writes_, packs_, states_, state_bodies_, state_raws_, limits_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.compact_v2(value_ jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE STRICT
AS $function$
    SELECT regexp_replace(value_::text, '("(?:\\.|[^"\\])*")|\s+', '\1', 'g')
$function$

CREATE OR REPLACE FUNCTION outlast.compact_v3(value_ jsonb)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE STRICT
AS $function$
    SELECT regexp_replace(value_::text, '("(?:\\.|[^"\\])*")|\s+', '\1', 'g')
$function$

CREATE OR REPLACE FUNCTION outlast.count_move_v2(from_ text, to_ text)
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

CREATE OR REPLACE FUNCTION outlast.count_move_v3(from_ text, to_ text)
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

CREATE OR REPLACE FUNCTION outlast.count_v2(statuses_ text[], changes_ bigint[])
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

CREATE OR REPLACE FUNCTION outlast.count_v3(statuses_ text[], changes_ bigint[])
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

CREATE OR REPLACE FUNCTION outlast.delete_records_v3(space_ text, ids_ text[])
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    deleted_ bigint;
BEGIN
    PERFORM 1 FROM "outlast".record_counts c WHERE c.space = space_ FOR NO KEY UPDATE;
    DELETE FROM "outlast".records r WHERE r.space = space_ AND r.id = ANY (ids_);
    GET DIAGNOSTICS deleted_ = ROW_COUNT;
    UPDATE "outlast".record_counts c SET n = c.n - deleted_ WHERE c.space = space_;
    RETURN deleted_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.delete_v3(id_ text, rows_ integer, OUT status text, OUT marks integer, OUT is_deleted boolean, OUT has_leftovers boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    is_deleted := false; has_leftovers := false;
    SELECT r.status, r.marks INTO status, marks FROM "outlast".runs r WHERE r.id = id_ FOR UPDATE;
    DELETE FROM "outlast".runs r WHERE r.id = id_ AND r.ended_at IS NOT NULL AND r.marks & 8 = 0;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    is_deleted := true;
    DELETE FROM "outlast".tags t WHERE t.run = id_;
    DELETE FROM "outlast".heartbeats h WHERE h.run = id_;
    IF NOT "outlast".sweep_v3(ARRAY[id_], rows_, false) THEN
        INSERT INTO "outlast".leftovers (run) VALUES (id_) ON CONFLICT DO NOTHING;
    END IF;
    PERFORM "outlast".count_v3(ARRAY[status], ARRAY[-1::bigint]);
    has_leftovers := EXISTS (SELECT 1 FROM "outlast".leftovers);
END
$function$

CREATE OR REPLACE FUNCTION outlast.deliver_v2(now_ bigint, children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], refused_ integer[], OUT statuses text[], OUT changes bigint[], OUT lowest bigint, OUT highest bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    put_ record;
    nths_ integer[] := '{}';
    codes_ text[] := '{}';
    runs_ text[] := '{}';
    workflows_ text[] := '{}';
    answers_ record;
    -- Messages of the engine are not limited.
    limits_ CONSTANT bigint[] := ARRAY[9223372036854775807, 9223372036854775807];
BEGIN
    IF json_array_length(children_) > 0 THEN
        FOR put_ IN SELECT * FROM "outlast".put_starts_v2(now_, children_, child_events_, refused_) LOOP
            IF put_.nth > 0 THEN
                nths_ := nths_ || put_.nth; codes_ := codes_ || put_.code; runs_ := runs_ || put_.run;
                workflows_ := workflows_ || put_.workflow;
            ELSIF put_.added > 0 THEN
                statuses := ARRAY['pending']; changes := ARRAY[put_.added];
                lowest := put_.lowest; highest := put_.highest;
            END IF;
        END LOOP;
        SELECT json_agg(json_build_object('run', t.parent, 'id', t.answer, 'op', t.parent_op,
                'kind', CASE WHEN t.failure IS NULL THEN 'child_started' ELSE 'refused' END) ORDER BY t.nth) AS messages,
            array_agg(coalesce(t.failure, t.there) ORDER BY t.nth) AS bodies
        INTO answers_
        FROM (
            SELECT c.nth, c.parent, c.answer, c.parent_op, coalesce(p.run, c.run) AS there,
                CASE WHEN c.refused IS NOT NULL THEN c.refused
                    WHEN p.code = 'taken' THEN replace(replace(
                        CASE WHEN p.workflow = c.workflow THEN c.taken ELSE c."foreign" END, c.mark_run, p.run),
                        c.mark_workflow, btrim(to_json(p.workflow)::text, '"'))
                    WHEN p.code = 'other' AND c.asks IS NOT TRUE THEN replace(c.other, c.mark_run, p.run) END AS failure,
                c.asks
            FROM ROWS FROM (json_to_recordset(children_) AS (run text, parent text, parent_op bigint, workflow text,
                turn_nth integer, answer text, asks boolean, refused text, other text, taken text, "foreign" text, mark_run text,
                mark_workflow text)) WITH ORDINALITY AS c (run, parent, parent_op, workflow, turn_nth, answer, asks, refused,
                other, taken, "foreign", mark_run, mark_workflow, nth)
            LEFT JOIN unnest(nths_, codes_, runs_, workflows_) AS p (nth, code, run, workflow) ON p.nth = c.nth
            WHERE c.turn_nth <> ALL (refused_) AND (c.asks OR c.refused IS NOT NULL OR p.code IN ('taken', 'other'))
        ) t;
        IF answers_.messages IS NOT NULL THEN
            PERFORM 1 FROM "outlast".put_messages_v2(now_, answers_.messages, answers_.bodies,
                array_fill(NULL::bytea, ARRAY[cardinality(answers_.bodies)]), limits_, '{}');
        END IF;
    END IF;
    IF json_array_length(messages_) > 0 THEN
        PERFORM 1 FROM "outlast".put_messages_v2(now_, messages_, bodies_, raws_, limits_, refused_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.deliver_v3(now_ bigint, children_ json, child_events_ text[], messages_ json, bodies_ text[], raws_ bytea[], refused_ integer[], OUT statuses text[], OUT changes bigint[], OUT lowest bigint, OUT highest bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    put_ record;
    nths_ integer[] := '{}';
    codes_ text[] := '{}';
    runs_ text[] := '{}';
    workflows_ text[] := '{}';
    answers_ record;
    -- Messages of the engine are not limited.
    limits_ CONSTANT bigint[] := ARRAY[9223372036854775807, 9223372036854775807];
BEGIN
    IF json_array_length(children_) > 0 THEN
        FOR put_ IN SELECT * FROM "outlast".put_starts_v3(now_, children_, child_events_, refused_) LOOP
            IF put_.nth > 0 THEN
                nths_ := nths_ || put_.nth; codes_ := codes_ || put_.code; runs_ := runs_ || put_.run;
                workflows_ := workflows_ || put_.workflow;
            ELSIF put_.added > 0 THEN
                statuses := ARRAY['pending']; changes := ARRAY[put_.added];
                lowest := put_.lowest; highest := put_.highest;
            END IF;
        END LOOP;
        SELECT json_agg(json_build_object('run', t.parent, 'id', t.answer, 'op', t.parent_op,
                'kind', CASE WHEN t.failure IS NULL THEN 'child_started' ELSE 'refused' END) ORDER BY t.nth) AS messages,
            array_agg(coalesce(t.failure, t.there) ORDER BY t.nth) AS bodies
        INTO answers_
        FROM (
            SELECT c.nth, c.parent, c.answer, c.parent_op, coalesce(p.run, c.run) AS there,
                CASE WHEN c.refused IS NOT NULL THEN c.refused
                    WHEN p.code = 'taken' THEN replace(replace(
                        CASE WHEN p.workflow = c.workflow THEN c.taken ELSE c."foreign" END, c.mark_run, p.run),
                        c.mark_workflow, btrim(to_json(p.workflow)::text, '"'))
                    WHEN p.code = 'other' AND c.asks IS NOT TRUE THEN replace(c.other, c.mark_run, p.run) END AS failure,
                c.asks
            FROM ROWS FROM (json_to_recordset(children_) AS (run text, parent text, parent_op bigint, workflow text,
                turn_nth integer, answer text, asks boolean, refused text, other text, taken text, "foreign" text, mark_run text,
                mark_workflow text)) WITH ORDINALITY AS c (run, parent, parent_op, workflow, turn_nth, answer, asks, refused,
                other, taken, "foreign", mark_run, mark_workflow, nth)
            LEFT JOIN unnest(nths_, codes_, runs_, workflows_) AS p (nth, code, run, workflow) ON p.nth = c.nth
            WHERE c.turn_nth <> ALL (refused_) AND (c.asks OR c.refused IS NOT NULL OR p.code IN ('taken', 'other'))
        ) t;
        IF answers_.messages IS NOT NULL THEN
            PERFORM 1 FROM "outlast".put_messages_v3(now_, answers_.messages, answers_.bodies,
                array_fill(NULL::bytea, ARRAY[cardinality(answers_.bodies)]), limits_, '{}');
        END IF;
    END IF;
    IF json_array_length(messages_) > 0 THEN
        PERFORM 1 FROM "outlast".put_messages_v3(now_, messages_, bodies_, raws_, limits_, refused_);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.digest_v2(payload_ text)
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

CREATE OR REPLACE FUNCTION outlast.digest_v3(payload_ text)
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

CREATE OR REPLACE FUNCTION outlast.end_session_v2(now_ bigint, id_ text, has_crashed_ boolean, expires_at_ bigint, class_max_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    held_ record;
BEGIN
    PERFORM 1 FROM "outlast".sessions s
    WHERE s.id = id_ AND s.ended_at IS NULL AND s.expires_at = coalesce(expires_at_, s.expires_at) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT count(*) AS runs, coalesce(max(least(r.crashes, class_max_)), 0) AS class INTO held_
    FROM "outlast".runs r WHERE r.owner = id_;
    UPDATE "outlast".sessions s SET ended_at = now_, crashed = has_crashed_, held_runs = held_.runs,
        held_class = held_.class
    WHERE s.id = id_;
    RETURN true;
END
$function$

CREATE OR REPLACE FUNCTION outlast.end_session_v3(now_ bigint, id_ text, has_crashed_ boolean, expires_at_ bigint, class_max_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    held_ record;
BEGIN
    PERFORM 1 FROM "outlast".sessions s
    WHERE s.id = id_ AND s.ended_at IS NULL AND s.expires_at = coalesce(expires_at_, s.expires_at) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    SELECT count(*) AS runs, coalesce(max(least(r.crashes, class_max_)), 0) AS class INTO held_
    FROM "outlast".runs r WHERE r.owner = id_;
    UPDATE "outlast".sessions s SET ended_at = now_, crashed = has_crashed_, held_runs = held_.runs,
        held_class = held_.class
    WHERE s.id = id_;
    RETURN true;
END
$function$

CREATE OR REPLACE FUNCTION outlast.failed_with_v2(list_ text, build_ text, max_ integer, OUT list text, OUT replaced_oldest boolean)
 RETURNS record
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
DECLARE
    builds_ text[] := '{}';
BEGIN
    IF list_ <> '' THEN
        builds_ := ARRAY(SELECT b.name FROM json_array_elements_text(list_::json) WITH ORDINALITY AS b (name, nth)
            WHERE b.name <> build_ ORDER BY b.nth);
    END IF;
    replaced_oldest := cardinality(builds_) >= max_;
    IF replaced_oldest THEN
        builds_ := builds_[2:];
    END IF;
    list := '[' || (SELECT string_agg(to_json(b.name)::text, ',' ORDER BY b.nth)
        FROM unnest(builds_ || build_) WITH ORDINALITY AS b (name, nth)) || ']';
END
$function$

CREATE OR REPLACE FUNCTION outlast.failed_with_v3(list_ text, build_ text, max_ integer, OUT list text, OUT replaced_oldest boolean)
 RETURNS record
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
DECLARE
    builds_ text[] := '{}';
BEGIN
    IF list_ <> '' THEN
        builds_ := ARRAY(SELECT b.name FROM json_array_elements_text(list_::json) WITH ORDINALITY AS b (name, nth)
            WHERE b.name <> build_ ORDER BY b.nth);
    END IF;
    replaced_oldest := cardinality(builds_) >= max_;
    IF replaced_oldest THEN
        builds_ := builds_[2:];
    END IF;
    list := '[' || (SELECT string_agg(to_json(b.name)::text, ',' ORDER BY b.nth)
        FROM unnest(builds_ || build_) WITH ORDINALITY AS b (name, nth)) || ']';
END
$function$

CREATE OR REPLACE FUNCTION outlast.forget_streams()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF (SELECT s.run FROM "outlast".states s ORDER BY s.run LIMIT 1) IS NOT NULL THEN
        DELETE FROM "outlast".states s USING gone g WHERE s.run = g.id;
    END IF;
    IF (SELECT s.run FROM "outlast".streams s ORDER BY s.run, s.name LIMIT 1) IS NOT NULL THEN
        DELETE FROM "outlast".stream_writers w USING gone g WHERE w.run = g.id;
        WITH forgotten AS (DELETE FROM "outlast".streams s USING gone g WHERE s.run = g.id RETURNING s.run)
        INSERT INTO "outlast".chunk_leftovers (run) SELECT DISTINCT f.run FROM forgotten f ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END
$function$

CREATE OR REPLACE FUNCTION outlast.forget_tokens()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF (SELECT t.hash FROM "outlast".tokens t ORDER BY t.hash LIMIT 1) IS NOT NULL THEN
        UPDATE "outlast".tokens t SET kept_until = g.ended_at + t.keep_for
        FROM gone g WHERE t.run = g.id AND t.keep_for IS NOT NULL AND t.kept_until IS NULL;
        DELETE FROM "outlast".tokens t USING gone g WHERE t.run = g.id AND t.kept_until IS NULL;
    END IF;
    IF (SELECT r.run FROM "outlast".replies r ORDER BY r.run, r.message LIMIT 1) IS NOT NULL THEN
        DELETE FROM "outlast".replies r USING gone g WHERE r.run = g.id;
    END IF;
    RETURN NULL;
END
$function$

CREATE OR REPLACE FUNCTION outlast.forget_v2(runs_ text[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".inbox i WHERE i.run = ANY (runs_);
    DELETE FROM "outlast".turns t WHERE t.run = ANY (runs_);
    DELETE FROM "outlast".heartbeats h WHERE h.run = ANY (runs_);
    DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
END
$function$

CREATE OR REPLACE FUNCTION outlast.forget_v3(runs_ text[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".inbox i WHERE i.run = ANY (runs_);
    DELETE FROM "outlast".turns t WHERE t.run = ANY (runs_);
    DELETE FROM "outlast".heartbeats h WHERE h.run = ANY (runs_);
    DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
END
$function$

CREATE OR REPLACE FUNCTION outlast.fork_v3(at_ bigint, row_ json, of_ text, before_ bigint, copied_ bigint, turns_ json, events_ text[], messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[], ranges_ json, OUT code text, OUT moment bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    a record;
    format_ integer;
    found_ bigint;
    now_ bigint := coalesce(at_, "outlast".clock_v3());
BEGIN
    moment := now_;
    SELECT * INTO a FROM json_to_record(row_) AS a (run text, turn text, born bigint, workflow text, version bigint,
        format integer, queue text, priority smallint, tags json, turn_at bigint, replay_from bigint, continued bigint);
    IF EXISTS (SELECT FROM "outlast".runs r WHERE r.id = a.run) THEN
        code := 'same';
        RETURN;
    END IF;
    SELECT r.format INTO format_ FROM "outlast".runs r WHERE r.id = of_;
    IF format_ IS NULL THEN
        code := 'none';
        RETURN;
    END IF;
    SELECT count(*) INTO found_ FROM json_to_recordset(ranges_) AS n (first bigint, last bigint)
    JOIN "outlast".turns t ON t.run = of_ AND t.seq BETWEEN n.first AND n.last;
    IF found_ <> copied_ THEN
        code := 'changed';
        RETURN;
    END IF;
    INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, ready_at, replay_from, continued)
    VALUES (a.run, a.workflow, a.version, greatest(a.format, format_), a.queue, a.priority, 'pending', a.turn, before_,
        a.turn_at, now_, now_, now_, a.replay_from, a.continued)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        code := 'same';
        RETURN;
    END IF;
    PERFORM "outlast".forget_v3(ARRAY[a.run]);
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    SELECT a.run, t.seq, t.next_seq, t.id, t.at, t.build, t.events
    FROM json_to_recordset(ranges_) AS n (first bigint, last bigint)
    JOIN "outlast".turns t ON t.run = of_ AND t.seq BETWEEN n.first AND n.last;
    GET DIAGNOSTICS found_ = ROW_COUNT;
    IF found_ <> copied_ THEN
        RAISE EXCEPTION 'turns of the forked run were deleted meanwhile' USING ERRCODE = '40001';
    END IF;
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    SELECT a.run, n.seq, n.next_seq, n.id, n.at, n.build, n.events
    FROM ROWS FROM (
        json_to_recordset(turns_) AS (seq bigint, next_seq bigint, id text, at bigint, build text), unnest(events_)
    ) AS n (seq, next_seq, id, at, build, events);
    INSERT INTO "outlast".tags (run, name, value)
    SELECT a.run, t.key, t.value FROM json_each_text(a.tags) AS t (key, value) WHERE a.tags IS NOT NULL;
    PERFORM 1 FROM "outlast".put_messages_v3(now_, messages_, bodies_, raws_, limits_, '{}');
    PERFORM "outlast".widen_v3(a.born - now_ / 1000, a.born - now_ / 1000);
    PERFORM "outlast".count_move_v3(NULL, 'pending');
    code := 'forked';
END
$function$

CREATE OR REPLACE FUNCTION outlast.free_keys_v2(now_ bigint, starts_ json)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    old_ record;
BEGIN
    IF position('"window":' IN starts_::text) = 0 THEN
        RETURN;
    END IF;
    FOR old_ IN
        SELECT r.id, a.key FROM json_to_recordset(starts_) AS a (run text, key text, "window" bigint)
        JOIN "outlast".runs r ON r.key = a.key
        WHERE a."window" IS NOT NULL AND r.created_at <= now_ - a."window" AND r.id <> a.run
        ORDER BY a.key COLLATE "C"
    LOOP
        UPDATE "outlast".runs SET key = NULL, key_digest = NULL WHERE id = old_.id AND key = old_.key;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.free_keys_v3(now_ bigint, starts_ json)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    old_ record;
BEGIN
    IF position('"window":' IN starts_::text) = 0 AND position('"while_running":' IN starts_::text) = 0
        AND position('"replaces":' IN starts_::text) = 0 THEN
        RETURN;
    END IF;
    FOR old_ IN
        SELECT r.id, a.key, a.replaces, a.replaced_reason
        FROM json_to_recordset(starts_) AS a (run text, key text, "window" bigint, while_running boolean, replaces text,
            replaced_reason text)
        JOIN "outlast".runs r ON r.key = a.key
        WHERE r.id <> a.run AND NOT EXISTS (SELECT FROM "outlast".runs same WHERE same.id = a.run)
            AND (a."window" IS NOT NULL AND r.created_at <= now_ - a."window" OR a.while_running AND r.ended_at IS NOT NULL
                OR a.replaces IS NOT NULL)
        ORDER BY a.key COLLATE "C"
    LOOP
        UPDATE "outlast".runs SET key = NULL, key_digest = NULL WHERE id = old_.id AND key = old_.key;
        IF FOUND AND old_.replaces IS NOT NULL THEN
            PERFORM 1 FROM "outlast".put_messages_v3(now_,
                json_build_array(json_build_object('run', old_.id, 'id', old_.replaces, 'kind', 'cancel')),
                ARRAY[old_.replaced_reason], ARRAY[NULL]::bytea[], ARRAY[0, 0]::bigint[], '{}');
        END IF;
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.free_v2(at_ bigint, session_ text, part_ integer, limits_ json)
 RETURNS TABLE(freed bigint, has_more boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    poison_ CONSTANT integer := (limits_ ->> 'poison_crashes')::integer;
    suspect_ CONSTANT integer := (limits_ ->> 'suspect_crashes')::integer;
    class_max_ CONSTANT integer := (limits_ ->> 'crash_class_max')::integer;
    ended_ record;
    moved_ record;
BEGIN
    SELECT s.crashed, s.held_runs, s.held_class, s.build INTO ended_
    FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NOT NULL;
    IF NOT FOUND THEN
        freed := 0; has_more := false;
        RETURN NEXT;
        RETURN;
    END IF;
    WITH locked AS (
        SELECT r.id FROM "outlast".runs r WHERE r.owner = session_ ORDER BY r.owner, r.id LIMIT part_
        FOR NO KEY UPDATE SKIP LOCKED
    ), held AS (
        SELECT r.*, tip.turn AS tip_turn, tip.at AS tip_at, tip.seq AS tip_seq,
            CASE WHEN r.failed_builds <> '' AND tip.seq <= r.failed_at THEN r.failed_builds::text ELSE '' END AS failed,
            ended_.crashed AND CASE WHEN ended_.held_class >= suspect_ AND ended_.held_class < class_max_
                THEN least(r.crashes, class_max_) = ended_.held_class
                ELSE least(r.crashes, class_max_) < class_max_ OR ended_.held_runs = 1 END AS is_counted
        FROM locked l JOIN "outlast".runs r ON r.id = l.id
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq, t.at FROM "outlast".turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            CASE WHEN last.next_seq > r.next_seq THEN last.at ELSE r.turn_at END AS at,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), judged AS (
        SELECT h.id, h.tip_turn, h.tip_at, h.tip_seq, h.failed, after.crashes, h.is_counted AND after.crashes >= poison_ AS is_poison,
            h.stuck_reason IS NOT NULL AS was_stuck,
            h.last_terminate > h.consumed OR h.tip_seq <= 1 AND h.last_cancel > h.consumed AS can_end
        FROM held h
        CROSS JOIN LATERAL (SELECT CASE WHEN h.is_counted THEN least(h.crashes + 1, poison_) ELSE h.crashes END AS crashes) after
    ), failed AS (
        SELECT j.*, f.list, f.replaced_oldest FROM judged j
        LEFT JOIN LATERAL "outlast".failed_with_v2(j.failed, ended_.build, (limits_ ->> 'failed_builds')::integer) f ON j.is_poison
    ), written AS (
        UPDATE "outlast".runs r SET
            status = CASE WHEN f.is_poison OR f.was_stuck THEN 'stuck' ELSE 'pending' END,
            owner = NULL, preferred = NULL, turn = f.tip_turn, next_seq = f.tip_seq, turn_at = f.tip_at,
            updated_at = now_, wake_at = NULL, waits = '[]', crashes = f.crashes,
            ready_at = now_ + CASE WHEN f.replaced_oldest AND NOT f.can_end THEN (limits_ ->> 'retry')::bigint ELSE 0 END,
            stuck_reason = CASE WHEN f.is_poison THEN 'poison' WHEN f.was_stuck THEN r.stuck_reason END,
            stuck_message = CASE WHEN f.is_poison THEN limits_ ->> 'message' WHEN f.was_stuck THEN r.stuck_message END,
            stuck_build = CASE WHEN f.is_poison THEN ended_.build WHEN f.was_stuck THEN r.stuck_build END,
            failed_builds = CASE WHEN f.is_poison THEN f.list ELSE f.failed END,
            failed_at = CASE WHEN f.is_poison THEN f.tip_seq WHEN f.failed <> '' THEN r.failed_at ELSE 0 END
        FROM failed f WHERE r.id = f.id
        RETURNING r.status
    )
    SELECT array_agg(w.status::text) || array_agg('running'::text) AS statuses,
        array_agg(1::bigint) || array_agg(-1::bigint) AS changes, count(*) AS n
    INTO moved_ FROM written w;
    IF moved_.n > 0 THEN
        PERFORM "outlast".count_v2(moved_.statuses, moved_.changes);
    END IF;
    freed := moved_.n;
    has_more := EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.owner = session_);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.free_v3(at_ bigint, session_ text, part_ integer, limits_ json)
 RETURNS TABLE(freed bigint, has_more boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    poison_ CONSTANT integer := (limits_ ->> 'poison_crashes')::integer;
    suspect_ CONSTANT integer := (limits_ ->> 'suspect_crashes')::integer;
    class_max_ CONSTANT integer := (limits_ ->> 'crash_class_max')::integer;
    ended_ record;
    moved_ record;
BEGIN
    SELECT s.crashed, s.held_runs, s.held_class, s.build INTO ended_
    FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NOT NULL;
    IF NOT FOUND THEN
        freed := 0; has_more := false;
        RETURN NEXT;
        RETURN;
    END IF;
    WITH locked AS (
        SELECT r.id FROM "outlast".runs r WHERE r.owner = session_ ORDER BY r.owner, r.id LIMIT part_
        FOR NO KEY UPDATE SKIP LOCKED
    ), held AS (
        SELECT r.*, tip.turn AS tip_turn, tip.at AS tip_at, tip.seq AS tip_seq,
            CASE WHEN r.failed_builds <> '' AND tip.seq <= r.failed_at THEN r.failed_builds::text ELSE '' END AS failed,
            ended_.crashed AND CASE WHEN ended_.held_class >= suspect_ AND ended_.held_class < class_max_
                THEN least(r.crashes, class_max_) = ended_.held_class
                ELSE least(r.crashes, class_max_) < class_max_ OR ended_.held_runs = 1 END AS is_counted
        FROM locked l JOIN "outlast".runs r ON r.id = l.id
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq, t.at FROM "outlast".turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true
        CROSS JOIN LATERAL (SELECT CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END AS turn,
            CASE WHEN last.next_seq > r.next_seq THEN last.at ELSE r.turn_at END AS at,
            greatest(last.next_seq, r.next_seq) AS seq) tip
    ), judged AS (
        SELECT h.id, h.tip_turn, h.tip_at, h.tip_seq, h.failed, after.crashes, h.is_counted AND after.crashes >= poison_ AS is_poison,
            h.stuck_reason IS NOT NULL AS was_stuck,
            h.last_terminate > h.consumed OR h.tip_seq <= 1 AND h.last_cancel > h.consumed AS can_end
        FROM held h
        CROSS JOIN LATERAL (SELECT CASE WHEN h.is_counted THEN least(h.crashes + 1, poison_) ELSE h.crashes END AS crashes) after
    ), failed AS (
        SELECT j.*, f.list, f.replaced_oldest FROM judged j
        LEFT JOIN LATERAL "outlast".failed_with_v3(j.failed, ended_.build, (limits_ ->> 'failed_builds')::integer) f ON j.is_poison
    ), written AS (
        UPDATE "outlast".runs r SET
            status = CASE WHEN f.is_poison OR f.was_stuck THEN 'stuck' ELSE 'pending' END,
            owner = NULL, preferred = NULL, turn = f.tip_turn, next_seq = f.tip_seq, turn_at = f.tip_at,
            updated_at = now_, wake_at = NULL, waits = '[]', crashes = f.crashes,
            -- Bit 1 of the marks: the run is paused.
            ready_at = CASE WHEN r.marks & 1 <> 0 AND NOT f.can_end THEN r.deadline
                ELSE now_ + CASE WHEN f.replaced_oldest AND NOT f.can_end THEN (limits_ ->> 'retry')::bigint ELSE 0 END END,
            stuck_reason = CASE WHEN f.is_poison THEN 'poison' WHEN f.was_stuck THEN r.stuck_reason END,
            stuck_message = CASE WHEN f.is_poison THEN limits_ ->> 'message' WHEN f.was_stuck THEN r.stuck_message END,
            stuck_build = CASE WHEN f.is_poison THEN ended_.build WHEN f.was_stuck THEN r.stuck_build END,
            failed_builds = CASE WHEN f.is_poison THEN f.list ELSE f.failed END,
            failed_at = CASE WHEN f.is_poison THEN f.tip_seq WHEN f.failed <> '' THEN r.failed_at ELSE 0 END
        FROM failed f WHERE r.id = f.id
        RETURNING r.status
    )
    SELECT array_agg(w.status::text) || array_agg('running'::text) AS statuses,
        array_agg(1::bigint) || array_agg(-1::bigint) AS changes, count(*) AS n
    INTO moved_ FROM written w;
    IF moved_.n > 0 THEN
        PERFORM "outlast".count_v3(moved_.statuses, moved_.changes);
    END IF;
    freed := moved_.n;
    has_more := EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.owner = session_);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.give_v2(session_ text, now_ bigint, chosen_ text[], ready_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    SELECT array_agg(r.status::text) || array_agg('running'::text) AS statuses,
        array_agg(-1::bigint) || array_agg(1::bigint) AS changes, max(r.next_seq) AS last_seq
    INTO moved_ FROM "outlast".runs r WHERE r.id = ANY (chosen_);
    IF moved_.last_seq = 1 THEN
        -- All runs are new. This claim need not be durable: nothing happens in a run before its first commit, which
        -- makes the claim durable as well. If the server crashes earlier, the runs can be claimed again.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY WITH given AS (
        UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL, waits = '[]',
            ready_at = NULL
        FROM unnest(chosen_) WITH ORDINALITY AS c (id, nth)
        WHERE r.id = c.id
        RETURNING r.*, c.nth
    )
    SELECT CASE WHEN g.ends_without_code THEN 'ending' ELSE 'given' END, g.id::text, g.workflow::text, g.version, g.turn::text, g.next_seq, g.turn_at, g.sent, g.consumed,
        coalesce(g.preferred = session_, false),
        EXISTS (SELECT 1 FROM "outlast".heartbeats h WHERE h.run = g.id),
        g.nth > ready_, NULL::bigint, NULL::bigint, NULL::bigint, t.build, t.events, g.crashes, g.kept, g.deadline, g.stuck_reason, g.stuck_message, g.stuck_build, g.failed_builds, g.failed_at
    FROM given g
    LEFT JOIN LATERAL (SELECT f.build, f.events FROM "outlast".turns f
        WHERE f.run = g.id AND f.seq = 0 AND g.next_seq = 1 LIMIT 1) t ON true
    ORDER BY g.nth;
    PERFORM "outlast".count_v2(moved_.statuses, moved_.changes);
END
$function$

CREATE OR REPLACE FUNCTION outlast.give_v3(session_ text, now_ bigint, chosen_ text[], ready_ integer)
 RETURNS TABLE(code text, run text, workflow text, version bigint, turn text, seq bigint, turn_at bigint, sent bigint, consumed bigint, is_known boolean, has_details boolean, is_overdue boolean, moment bigint, next_due bigint, next_deadline bigint, first_build text, first_events text, crashes integer, kept bigint, deadline bigint, stuck_reason text, stuck_message text, stuck_build text, failed_builds text, failed_at bigint, replay_from bigint, continued bigint, marks integer, retrying boolean, failure text, fingerprint bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    moved_ record;
BEGIN
    SELECT array_agg(r.status::text) || array_agg('running'::text) AS statuses,
        array_agg(-1::bigint) || array_agg(1::bigint) AS changes, max(r.next_seq) AS last_seq
    INTO moved_ FROM "outlast".runs r WHERE r.id = ANY (chosen_);
    IF moved_.last_seq = 1 THEN
        -- All runs are new. This claim need not be durable: nothing happens in a run before its first commit, which
        -- makes the claim durable as well. If the server crashes earlier, the runs can be claimed again.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    RETURN QUERY WITH given AS (
        UPDATE "outlast".runs r SET status = 'running', owner = session_, updated_at = now_, wake_at = NULL, waits = '[]',
            ready_at = NULL
        FROM unnest(chosen_) WITH ORDINALITY AS c (id, nth)
        WHERE r.id = c.id
        RETURNING r.*, c.nth
    )
    SELECT CASE WHEN g.ends_without_code THEN 'ending' ELSE 'given' END, g.id::text, g.workflow::text, g.version, g.turn::text, g.next_seq, g.turn_at, g.sent, g.consumed,
        coalesce(g.preferred = session_, false),
        EXISTS (SELECT 1 FROM "outlast".heartbeats h WHERE h.run = g.id),
        g.nth > ready_, NULL::bigint, NULL::bigint, NULL::bigint, t.build, t.events, g.crashes, g.kept, g.deadline, g.stuck_reason, g.stuck_message, g.stuck_build, g.failed_builds, g.failed_at, g.replay_from, g.continued, g.marks, g.retrying, g.failure, g.fingerprint
    FROM given g
    LEFT JOIN LATERAL (SELECT f.build, f.events FROM "outlast".turns f
        WHERE f.run = g.id AND f.seq = 0 AND g.next_seq = 1 LIMIT 1) t ON true
    ORDER BY g.nth;
    PERFORM "outlast".count_v3(moved_.statuses, moved_.changes);
END
$function$

CREATE OR REPLACE FUNCTION outlast.hex_v2(bits_ numeric)
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

CREATE OR REPLACE FUNCTION outlast.hex_v3(bits_ numeric)
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

CREATE OR REPLACE FUNCTION outlast.hint_v2()
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT pg_notify('{channel}', '0 w')
$function$

CREATE OR REPLACE FUNCTION outlast.hint_v3()
 RETURNS void
 LANGUAGE sql
AS $function$
    SELECT pg_notify('{channel}', '0 w')
$function$

CREATE OR REPLACE FUNCTION outlast.join_v2(at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, time_ bigint, has_lock_ boolean, rules_ integer, format_ integer, interface_ integer, version_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
BEGIN
    INSERT INTO "outlast".sessions (id, host, pid, build, code, queues, time, rules, format, interface, version, joined_at,
        expires_at, beat_at, boot, has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, rules_, format_, interface_, version_, now_,
        least(now_, 9223372036854775807 - time_) + time_, now_, "outlast".boot_v2(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM "outlast".refresh_rules_v2();
    END IF;
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.join_v3(at_ bigint, id_ text, host_ text, pid_ bigint, build_ text, code_ text, queues_ text, time_ bigint, has_lock_ boolean, rules_ integer, format_ integer, interface_ integer, version_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
BEGIN
    INSERT INTO "outlast".sessions (id, host, pid, build, code, queues, time, rules, format, interface, version, joined_at,
        expires_at, beat_at, boot, has_lock)
    VALUES (id_, host_, pid_, build_, code_, queues_, time_, rules_, format_, interface_, version_, now_,
        least(now_, 9223372036854775807 - time_) + time_, now_, "outlast".boot_v3(), has_lock_)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM "outlast".refresh_rules_v3();
    END IF;
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.leave_v2(at_ bigint, id_ text, class_max_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NOT "outlast".end_session_v2(coalesce(at_, "outlast".clock_v2()), id_, false, NULL, class_max_) THEN
        RETURN false;
    END IF;
    PERFORM "outlast".refresh_rules_v2();
    RETURN true;
END
$function$

CREATE OR REPLACE FUNCTION outlast.leave_v3(at_ bigint, id_ text, class_max_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF NOT "outlast".end_session_v3(coalesce(at_, "outlast".clock_v3()), id_, false, NULL, class_max_) THEN
        RETURN false;
    END IF;
    PERFORM "outlast".refresh_rules_v3();
    RETURN true;
END
$function$

CREATE OR REPLACE FUNCTION outlast.lines_v2(queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, rooms_ integer[])
 RETURNS outlast.line_v2[]
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- Copies as local variables, whose elements are faster to access.
    names_ text[] := workflows_;
    numbers_ bigint[] := versions_;
    count_ CONSTANT integer := cardinality(workflows_);
    lines_ "outlast".line_v2[] := '{}';
    line_ "outlast".line_v2;
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
            FROM "outlast".runs r
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
$function$

CREATE OR REPLACE FUNCTION outlast.lines_v3(queues_ text[], workflows_ text[], versions_ bigint[], build_ text, format_ integer, rooms_ integer[])
 RETURNS outlast.line_v3[]
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- Copies as local variables, whose elements are faster to access.
    names_ text[] := workflows_;
    numbers_ bigint[] := versions_;
    count_ CONSTANT integer := cardinality(workflows_);
    lines_ "outlast".line_v3[] := '{}';
    line_ "outlast".line_v3;
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
            FROM "outlast".runs r
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
$function$

CREATE OR REPLACE FUNCTION outlast.lock_key_v2(id_ text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT hashtextextended('outlast' || ' ' || id_, 20261115)
$function$

CREATE OR REPLACE FUNCTION outlast.lock_key_v3(id_ text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE
AS $function$
    SELECT hashtextextended('outlast' || ' ' || id_, 20261115)
$function$

CREATE OR REPLACE FUNCTION outlast.lock_runs_v2(runs_ text[], skips_ boolean)
 RETURNS text[]
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    locked_ text[];
BEGIN
    IF cardinality(runs_) = 0 THEN
        RETURN '{}';
    END IF;
    IF NOT skips_ THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
        RETURN '{}';
    END IF;
    locked_ := ARRAY(SELECT r.id::text FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(locked_) = cardinality(runs_) THEN
        RETURN '{}';
    END IF;
    -- Runs that do not exist are not locked.
    RETURN ARRAY(SELECT r.id::text FROM "outlast".runs r
        WHERE r.id = ANY (ARRAY(SELECT unnest(runs_) EXCEPT SELECT unnest(locked_))));
END
$function$

CREATE OR REPLACE FUNCTION outlast.lock_runs_v3(runs_ text[], skips_ boolean)
 RETURNS text[]
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    locked_ text[];
BEGIN
    IF cardinality(runs_) = 0 THEN
        RETURN '{}';
    END IF;
    IF NOT skips_ THEN
        PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
        RETURN '{}';
    END IF;
    locked_ := ARRAY(SELECT r.id::text FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE SKIP LOCKED);
    IF cardinality(locked_) = cardinality(runs_) THEN
        RETURN '{}';
    END IF;
    -- Runs that do not exist are not locked.
    RETURN ARRAY(SELECT r.id::text FROM "outlast".runs r
        WHERE r.id = ANY (ARRAY(SELECT unnest(runs_) EXCEPT SELECT unnest(locked_))));
END
$function$

CREATE OR REPLACE FUNCTION outlast.merge_v2()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    merged_ record;
BEGIN
    PERFORM 1 FROM "outlast".unmerged u ORDER BY u.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH part AS (
        DELETE FROM "outlast".unmerged u WHERE u.id = ANY (ARRAY(
            SELECT o.id FROM "outlast".unmerged o ORDER BY o.id LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING u.status, u.n, u.lowest, u.highest
    )
    SELECT array_agg(p.status::text) AS statuses, array_agg(p.n) AS changes, min(p.lowest) AS lowest,
        max(p.highest) AS highest INTO merged_ FROM part p;
    IF merged_.statuses IS NOT NULL THEN
        PERFORM "outlast".widen_v2(merged_.lowest, merged_.highest);
        PERFORM "outlast".count_v2(merged_.statuses, merged_.changes);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.merge_v3()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    merged_ record;
BEGIN
    PERFORM 1 FROM "outlast".unmerged u ORDER BY u.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WITH part AS (
        DELETE FROM "outlast".unmerged u WHERE u.id = ANY (ARRAY(
            SELECT o.id FROM "outlast".unmerged o ORDER BY o.id LIMIT 10000 FOR UPDATE SKIP LOCKED))
        RETURNING u.status, u.n, u.lowest, u.highest
    )
    SELECT array_agg(p.status::text) AS statuses, array_agg(p.n) AS changes, min(p.lowest) AS lowest,
        max(p.highest) AS highest INTO merged_ FROM part p;
    IF merged_.statuses IS NOT NULL THEN
        PERFORM "outlast".widen_v3(merged_.lowest, merged_.highest);
        PERFORM "outlast".count_v3(merged_.statuses, merged_.changes);
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.new_bits_v2(now_ bigint)
 RETURNS numeric
 LANGUAGE sql
AS $function$
    SELECT div(now_, 1000) * 1208925819614629174706176
        + ('x' || substr(chance.hex, 1, 12))::bit(48)::bigint::numeric * 4294967296
        + ('x' || substr(chance.hex, 25, 8))::bit(32)::bigint
    FROM (SELECT replace(gen_random_uuid()::text, '-', '') AS hex) AS chance
$function$

CREATE OR REPLACE FUNCTION outlast.new_bits_v3(now_ bigint)
 RETURNS numeric
 LANGUAGE sql
AS $function$
    SELECT div(now_, 1000) * 1208925819614629174706176
        + ('x' || substr(chance.hex, 1, 12))::bit(48)::bigint::numeric * 4294967296
        + ('x' || substr(chance.hex, 25, 8))::bit(32)::bigint
    FROM (SELECT replace(gen_random_uuid()::text, '-', '') AS hex) AS chance
$function$

CREATE OR REPLACE FUNCTION outlast.next_due_of_v2(session_ text, now_ bigint, has_room_ boolean, format_ integer, rooms_ integer[], preference_ bigint, lines_ outlast.line_v2[], has_codeless_ boolean)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- The number of groups without a ready run that are examined. For the others, `head` is sufficient.
    looks_ CONSTANT integer := 5;
    looked_ integer := 0;
    floor_ CONSTANT bigint := CASE WHEN has_room_ THEN -9223372036854775808 ELSE now_ END;
    line_ "outlast".line_v2;
    later_ "outlast".line_v2[] := '{}';
    due_ bigint;
BEGIN
    FOREACH line_ IN ARRAY lines_ LOOP
        IF line_.head <= now_ THEN
            due_ := least(due_, "outlast".next_due_v2(session_, now_,
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
                ELSE "outlast".next_due_v2(session_, now_, floor_, preference_, line_) END);
        END LOOP;
    END IF;
    IF has_codeless_ AND has_room_ THEN
        due_ := least(due_, (
            SELECT min(CASE
                WHEN l.preferred <> session_
                    AND EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = l.preferred AND s.ended_at IS NULL)
                    THEN least(l.ready_at, 9223372036854775807 - preference_) + preference_
                ELSE l.ready_at END)
            FROM (SELECT r.ready_at, r.preferred FROM "outlast".runs r WHERE r.ends_without_code AND r.ready_at IS NOT NULL
                    AND r.format <= format_ AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0 OR r.ready_at > now_)
                ORDER BY r.ready_at, r.id LIMIT 20) l));
    END IF;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$function$

CREATE OR REPLACE FUNCTION outlast.next_due_of_v3(session_ text, now_ bigint, has_room_ boolean, format_ integer, rooms_ integer[], preference_ bigint, lines_ outlast.line_v3[], has_codeless_ boolean)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- The number of groups without a ready run that are examined. For the others, `head` is sufficient.
    looks_ CONSTANT integer := 5;
    looked_ integer := 0;
    floor_ CONSTANT bigint := CASE WHEN has_room_ THEN -9223372036854775808 ELSE now_ END;
    line_ "outlast".line_v3;
    later_ "outlast".line_v3[] := '{}';
    due_ bigint;
BEGIN
    FOREACH line_ IN ARRAY lines_ LOOP
        IF line_.head <= now_ THEN
            due_ := least(due_, "outlast".next_due_v3(session_, now_,
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
                ELSE "outlast".next_due_v3(session_, now_, floor_, preference_, line_) END);
        END LOOP;
    END IF;
    IF has_codeless_ AND has_room_ THEN
        due_ := least(due_, (
            SELECT min(CASE
                WHEN l.preferred <> session_
                    AND EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = l.preferred AND s.ended_at IS NULL)
                    THEN least(l.ready_at, 9223372036854775807 - preference_) + preference_
                ELSE l.ready_at END)
            FROM (SELECT r.ready_at, r.preferred FROM "outlast".runs r WHERE r.ends_without_code AND r.ready_at IS NOT NULL
                    AND r.format <= format_ AND (r.crash_class = 0 OR rooms_[r.crash_class] > 0 OR r.ready_at > now_)
                ORDER BY r.ready_at, r.id LIMIT 20) l));
    END IF;
    RETURN CASE WHEN due_ > now_ THEN due_ WHEN due_ IS NOT NULL THEN now_ + 5000 END;
END
$function$

CREATE OR REPLACE FUNCTION outlast.next_due_v2(session_ text, now_ bigint, floor_ bigint, preference_ bigint, line_ outlast.line_v2)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- The number of runs that are examined: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    looked_ integer := 0;
    due_ bigint;
    next_ record;
BEGIN
    FOR next_ IN
        SELECT r.ready_at, r.preferred FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT looks_
    LOOP
        looked_ := looked_ + 1;
        EXIT WHEN next_.ready_at >= due_;
        IF looked_ < looks_ AND next_.preferred <> session_ THEN
            PERFORM 1 FROM "outlast".sessions s WHERE s.id = next_.preferred AND s.ended_at IS NULL;
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

CREATE OR REPLACE FUNCTION outlast.next_due_v3(session_ text, now_ bigint, floor_ bigint, preference_ bigint, line_ outlast.line_v3)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    -- The number of runs that are examined: the first may have to wait for its preferred session.
    looks_ CONSTANT integer := 20;
    looked_ integer := 0;
    due_ bigint;
    next_ record;
BEGIN
    FOR next_ IN
        SELECT r.ready_at, r.preferred FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at > floor_
        ORDER BY r.ready_at, r.id LIMIT looks_
    LOOP
        looked_ := looked_ + 1;
        EXIT WHEN next_.ready_at >= due_;
        IF looked_ < looks_ AND next_.preferred <> session_ THEN
            PERFORM 1 FROM "outlast".sessions s WHERE s.id = next_.preferred AND s.ended_at IS NULL;
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

CREATE OR REPLACE FUNCTION outlast.open_stream_v3(run_ text, stream_ text, limit_ bigint)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF EXISTS (SELECT 1 FROM "outlast".streams s WHERE s.run = run_ AND s.name = stream_) THEN
        RETURN true;
    END IF;
    IF (SELECT count(*) FROM "outlast".streams s WHERE s.run = run_) >= limit_ THEN
        RETURN false;
    END IF;
    DELETE FROM "outlast".chunks c WHERE c.run = run_ AND c.stream = stream_;
    INSERT INTO "outlast".streams (run, name) VALUES (run_, stream_) ON CONFLICT DO NOTHING;
    RETURN true;
END
$function$

CREATE OR REPLACE FUNCTION outlast.prune_tokens_v3(at_ bigint, kept_ bigint, limit_ integer)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ CONSTANT bigint := coalesce(at_, "outlast".clock_v3());
BEGIN
    DELETE FROM "outlast".tokens t WHERE t.hash IN (
        SELECT k.hash FROM "outlast".tokens k WHERE k.kept_until <= now_ ORDER BY k.kept_until LIMIT limit_);
    DELETE FROM "outlast".replies r USING (
        SELECT o.run, o.message FROM "outlast".replies o WHERE o.at <= now_ - kept_ ORDER BY o.at LIMIT limit_) o
    WHERE r.run = o.run AND r.message = o.message;
END
$function$

CREATE OR REPLACE FUNCTION outlast.prune_v2(before_ bigint, after_ text, limit_ integer, rows_ integer)
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
        DELETE FROM "outlast".heartbeats h WHERE h.run = ANY (part_.old);
        WITH gone AS (DELETE FROM "outlast".runs r WHERE r.id = ANY (part_.old) AND r.ended_at < before_ RETURNING r.id, r.status)
        SELECT array_agg(g.id::text) AS ids, array_agg(g.status::text) AS statuses, array_agg(-1::bigint) AS changes,
            count(*) AS n INTO gone_ FROM gone g;
        runs := gone_.n;
        IF gone_.n > 0 THEN
            IF NOT "outlast".sweep_v2(gone_.ids, rows_, false) THEN
                INSERT INTO "outlast".leftovers (run) SELECT unnest(gone_.ids) ON CONFLICT DO NOTHING;
            END IF;
            PERFORM "outlast".count_v2(gone_.statuses, gone_.changes);
        END IF;
    END IF;
    has_leftovers := EXISTS (SELECT 1 FROM "outlast".leftovers);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.prune_v3(before_ bigint, after_ text, limit_ integer, rows_ integer)
 RETURNS TABLE(runs bigint, next text, has_leftovers boolean)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    part_ record;
    gone_ record;
BEGIN
    SELECT array_agg(p.id::text ORDER BY p.id) FILTER (WHERE p.ended_at < before_ AND p.marks & 8 = 0) AS old, max(p.id) AS last, count(*) AS n
    INTO part_
    FROM (SELECT r.id, r.ended_at, r.marks FROM "outlast".runs r WHERE r.id > after_ ORDER BY r.id LIMIT limit_) p;
    runs := 0;
    next := CASE WHEN part_.n = limit_ THEN part_.last END;
    IF part_.old IS NOT NULL THEN
        DELETE FROM "outlast".tags t WHERE t.run = ANY (part_.old);
        DELETE FROM "outlast".heartbeats h WHERE h.run = ANY (part_.old);
        WITH gone AS (DELETE FROM "outlast".runs r WHERE r.id = ANY (part_.old) AND r.ended_at < before_ AND r.marks & 8 = 0 RETURNING r.id, r.status)
        SELECT array_agg(g.id::text) AS ids, array_agg(g.status::text) AS statuses, array_agg(-1::bigint) AS changes,
            count(*) AS n INTO gone_ FROM gone g;
        runs := gone_.n;
        IF gone_.n > 0 THEN
            IF NOT "outlast".sweep_v3(gone_.ids, rows_, false) THEN
                INSERT INTO "outlast".leftovers (run) SELECT unnest(gone_.ids) ON CONFLICT DO NOTHING;
            END IF;
            PERFORM "outlast".count_v3(gone_.statuses, gone_.changes);
        END IF;
    END IF;
    has_leftovers := EXISTS (SELECT 1 FROM "outlast".leftovers);
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_details_v2(session_ text, details_ json, bodies_ text[], raws_ bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    INSERT INTO "outlast".heartbeats AS kept (run, op, attempt, codec, body, raw)
    SELECT DISTINCT ON (a.run, a.op) a.run, a.op, a.attempt, a.codec, a.body, a.raw
    FROM ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint, codec text), unnest(bodies_), unnest(raws_))
        WITH ORDINALITY AS a (run, op, attempt, codec, body, raw, nth)
    JOIN "outlast".runs r ON r.id = a.run
    WHERE r.owner = session_ AND (a.body IS NOT NULL OR a.raw IS NOT NULL)
    ORDER BY a.run, a.op, a.attempt DESC, a.nth DESC
    ON CONFLICT (run, op) DO UPDATE SET attempt = excluded.attempt, codec = excluded.codec, body = excluded.body,
        raw = excluded.raw
    WHERE excluded.attempt >= kept.attempt;
    DELETE FROM "outlast".heartbeats h
    USING ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint), unnest(bodies_), unnest(raws_))
        AS a (run, op, attempt, body, raw)
    WHERE a.body IS NULL AND a.raw IS NULL AND h.run = a.run AND h.op = a.op AND h.attempt <= a.attempt
        AND EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.id = a.run AND (r.owner = session_ OR r.ended_at IS NOT NULL));
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_details_v3(session_ text, details_ json, bodies_ text[], raws_ bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    INSERT INTO "outlast".heartbeats AS kept (run, op, attempt, codec, body, raw)
    SELECT DISTINCT ON (a.run, a.op) a.run, a.op, a.attempt, a.codec, a.body, a.raw
    FROM ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint, codec text), unnest(bodies_), unnest(raws_))
        WITH ORDINALITY AS a (run, op, attempt, codec, body, raw, nth)
    JOIN "outlast".runs r ON r.id = a.run
    WHERE r.owner = session_ AND (a.body IS NOT NULL OR a.raw IS NOT NULL)
    ORDER BY a.run, a.op, a.attempt DESC, a.nth DESC
    ON CONFLICT (run, op) DO UPDATE SET attempt = excluded.attempt, codec = excluded.codec, body = excluded.body,
        raw = excluded.raw
    WHERE excluded.attempt >= kept.attempt;
    DELETE FROM "outlast".heartbeats h
    USING ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint), unnest(bodies_), unnest(raws_))
        AS a (run, op, attempt, body, raw)
    WHERE a.body IS NULL AND a.raw IS NULL AND h.run = a.run AND h.op = a.op AND h.attempt <= a.attempt
        AND EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.id = a.run AND (r.owner = session_ OR r.ended_at IS NOT NULL));
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_messages_v2(now_ bigint, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[], refused_ integer[])
 RETURNS TABLE(code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS (
        SELECT a.*, r.status, r.sent, r.consumed, r.kept, r.waits, r.cancel_requested, known.position AS known,
            known.after_cancel AS known_after_cancel,
            holder.host AS holder_host, holder.pid AS holder_pid, holder.format AS holder_format,
            known.position IS NULL AND r.ended_at IS NULL AND r.id IS NOT NULL AND holder.pid IS NULL AS is_candidate
        FROM ROWS FROM (
            json_to_recordset(messages_) AS (run text, id text, kind text, name text, op bigint, outcome text, codec text,
                headers text, turn_nth integer, format integer),
            unnest(bodies_), unnest(raws_)
        ) WITH ORDINALITY AS a (run, id, kind, name, op, outcome, codec, headers, turn_nth, format, body, raw, nth)
        LEFT JOIN LATERAL (SELECT * FROM "outlast".runs r WHERE r.id = a.run) r ON true
        -- Sorted as the index `inbox_id`. With the other index, which Postgres may prefer without statistics, each message
        -- would read the whole inbox of its receiver.
        LEFT JOIN LATERAL (SELECT i.id, i.position, i.after_cancel FROM "outlast".inbox i WHERE i.run = a.run AND i.id >= a.id
            ORDER BY i.run, i.id LIMIT 1) known ON known.id = a.id
        LEFT JOIN LATERAL (SELECT s.host, s.pid, s.format FROM "outlast".sessions s WHERE a.format IS NOT NULL
            AND a.turn_nth IS NULL AND s.id = r.owner AND s.ended_at IS NULL AND s.format < a.format) holder ON true
        WHERE a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_)
    ), ranked AS (
        SELECT a.*, a.sent - a.consumed + count(*) FILTER (WHERE a.is_candidate) OVER (PARTITION BY a.run ORDER BY a.nth) - 1
            AS unread
        FROM asked a
    ), judged AS (
        SELECT a.*, a.is_candidate AND CASE a.kind WHEN 'hook' THEN a.unread < limits_[1] AND CASE
                WHEN a.unread + a.kept < limits_[2] THEN true
                -- A name with NUL cannot be compared here; its hook counts as not open.
                WHEN strpos(a.waits, '\u0000') > 0 THEN false
                ELSE EXISTS (SELECT FROM json_array_elements(a.waits::json) w WHERE w->>'on' = 'hook' AND w->>'name' = a.name) END
            WHEN 'wake' THEN a.unread < limits_[1] ELSE true END AS is_accepted
        FROM ranked a
    ), placed AS (
        SELECT a.*, a.sent + count(*) FILTER (WHERE a.is_accepted) OVER w AS position,
            a.cancel_requested OR coalesce(bool_or(a.is_accepted AND a.kind = 'cancel')
                OVER (PARTITION BY a.run ORDER BY a.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS was_cancelled
        FROM judged a WINDOW w AS (PARTITION BY a.run ORDER BY a.nth)
    ), added AS (
        INSERT INTO "outlast".inbox (run, position, id, at, kind, name, op, outcome, codec, body, raw, headers, after_cancel)
        SELECT p.run, p.position, p.id, now_, p.kind, p.name, p.op, p.outcome, p.codec, p.body, p.raw, p.headers,
            CASE WHEN p.kind = 'cancel' THEN p.was_cancelled END
        FROM placed p WHERE p.is_accepted
    ), received AS (
        SELECT p.run, max(p.position) AS sent, coalesce(max(p.position) FILTER (WHERE p.kind = 'terminate'), 0) AS last_terminate,
            coalesce(max(p.position) FILTER (WHERE p.kind = 'cancel'), 0) AS last_cancel,
            max(p.format) AS format
        FROM placed p WHERE p.is_accepted GROUP BY p.run
    ), woken AS (
        UPDATE "outlast".runs r SET sent = n.sent, updated_at = now_,
            last_terminate = greatest(r.last_terminate, n.last_terminate),
            last_cancel = greatest(r.last_cancel, n.last_cancel),
            cancel_requested = r.cancel_requested OR n.last_cancel > 0, format = greatest(r.format, n.format),
            ready_at = CASE WHEN r.owner IS NOT NULL THEN r.ready_at
                WHEN (r.status = 'stuck' OR r.status = 'pending' AND r.wake_at IS NOT NULL)
                    AND NOT (n.last_terminate > 0 OR r.next_seq <= 1 AND n.last_cancel > 0) THEN r.ready_at
                ELSE least(r.ready_at, now_) END
        FROM received n WHERE r.id = n.run
    )
    SELECT CASE WHEN p.known IS NOT NULL OR p.is_accepted THEN 'sent' WHEN p.status IS NULL THEN 'none'
            WHEN p.holder_pid IS NOT NULL THEN 'unreadable' WHEN NOT p.is_candidate THEN 'ended' ELSE 'full' END,
        CASE WHEN p.known IS NOT NULL THEN p.known WHEN p.is_accepted THEN p.position
            WHEN p.holder_pid IS NOT NULL THEN p.holder_format ELSE p.unread END,
        p.status::text, p.kept,
        CASE WHEN p.known IS NOT NULL THEN coalesce(p.known_after_cancel, p.was_cancelled) ELSE p.was_cancelled END, p.holder_host, p.holder_pid
    FROM placed p ORDER BY p.nth;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_messages_v3(now_ bigint, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[], refused_ integer[])
 RETURNS TABLE(code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS (
        SELECT a.*, r.status, r.sent, r.consumed, r.kept, r.waits, r.cancel_requested, r.marks, known.position AS known,
            known.after_cancel AS known_after_cancel,
            holder.host AS holder_host, holder.pid AS holder_pid, holder.format AS holder_format,
            known.position IS NULL AND r.ended_at IS NULL AND r.id IS NOT NULL AND holder.pid IS NULL AS is_candidate
        FROM ROWS FROM (
            json_to_recordset(messages_) AS (run text, id text, kind text, name text, op bigint, outcome text, codec text,
                headers text, turn_nth integer, format integer),
            unnest(bodies_), unnest(raws_)
        ) WITH ORDINALITY AS a (run, id, kind, name, op, outcome, codec, headers, turn_nth, format, body, raw, nth)
        LEFT JOIN LATERAL (SELECT * FROM "outlast".runs r WHERE r.id = a.run) r ON true
        -- Sorted as the index `inbox_id`. With the other index, which Postgres may prefer without statistics, each message
        -- would read the whole inbox of its receiver.
        LEFT JOIN LATERAL (SELECT i.id, i.position, i.after_cancel FROM "outlast".inbox i WHERE i.run = a.run AND i.id >= a.id
            ORDER BY i.run, i.id LIMIT 1) known ON known.id = a.id
        LEFT JOIN LATERAL (SELECT s.host, s.pid, s.format FROM "outlast".sessions s WHERE a.format IS NOT NULL
            AND a.turn_nth IS NULL AND s.id = r.owner AND s.ended_at IS NULL AND s.format < a.format) holder ON true
        WHERE a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_)
    ), ranked AS (
        SELECT a.*, a.sent - a.consumed + count(*) FILTER (WHERE a.is_candidate) OVER (PARTITION BY a.run ORDER BY a.nth) - 1
            AS unread,
            a.cancel_requested OR coalesce(bool_or(a.is_candidate AND a.kind = 'cancel')
                OVER (PARTITION BY a.run ORDER BY a.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS was_cancelled
        FROM asked a
    ), judged AS (
        SELECT a.*, a.is_candidate AND CASE a.kind WHEN 'hook' THEN a.unread < limits_[1] AND CASE
                WHEN a.unread + a.kept < limits_[2] THEN true
                -- A name with NUL cannot be compared here; its hook counts as not open.
                WHEN strpos(a.waits, '\u0000') > 0 THEN false
                ELSE EXISTS (SELECT FROM json_array_elements(a.waits::json) w WHERE w->>'on' = 'hook' AND w->>'name' = a.name) END
            WHEN 'wake' THEN a.unread < limits_[1] WHEN 'pause' THEN a.unread < limits_[1] AND NOT a.was_cancelled
            ELSE true END AS is_accepted
        FROM ranked a
    ), placed AS (
        SELECT a.*, a.sent + count(*) FILTER (WHERE a.is_accepted) OVER w AS position
        FROM judged a WINDOW w AS (PARTITION BY a.run ORDER BY a.nth)
    ), added AS (
        INSERT INTO "outlast".inbox (run, position, id, at, kind, name, op, outcome, codec, body, raw, headers, after_cancel)
        SELECT p.run, p.position, p.id, now_, p.kind, p.name, p.op, p.outcome, p.codec, p.body, p.raw, p.headers,
            p.was_cancelled
        FROM placed p WHERE p.is_accepted
    ), received AS (
        SELECT p.run, max(p.position) AS sent, coalesce(max(p.position) FILTER (WHERE p.kind = 'terminate'), 0) AS last_terminate,
            coalesce(max(p.position) FILTER (WHERE p.kind = 'cancel'), 0) AS last_cancel,
            max(p.format) AS format,
            CASE WHEN bool_or(p.was_cancelled OR p.kind = 'cancel' OR p.marks & 2 <> 0) THEN min(p.marks) & ~1
                WHEN max(p.position) FILTER (WHERE p.kind = 'pause')
                    > coalesce(max(p.position) FILTER (WHERE p.kind = 'resume'), 0) THEN min(p.marks) | 1
                WHEN bool_or(p.kind = 'resume') THEN min(p.marks) & ~1
                ELSE min(p.marks) END AS marks
        FROM placed p WHERE p.is_accepted GROUP BY p.run
    ), woken AS (
        UPDATE "outlast".runs r SET sent = n.sent, updated_at = now_,
            last_terminate = greatest(r.last_terminate, n.last_terminate),
            last_cancel = greatest(r.last_cancel, n.last_cancel),
            cancel_requested = r.cancel_requested OR n.last_cancel > 0, format = greatest(r.format, n.format),
            marks = n.marks,
            ready_at = CASE WHEN r.owner IS NOT NULL THEN r.ready_at
                WHEN n.last_terminate > 0 OR r.next_seq <= 1 AND n.last_cancel > 0 OR r.ends_without_code
                    THEN least(r.ready_at, now_)
                WHEN n.marks & 1 <> 0 THEN r.deadline
                WHEN r.marks & 1 <> 0 THEN greatest(now_, CASE WHEN r.status = 'pending' THEN r.wake_at END)
                WHEN r.status = 'stuck' OR r.status = 'pending' AND r.wake_at IS NOT NULL THEN r.ready_at
                ELSE least(r.ready_at, now_) END
        FROM received n WHERE r.id = n.run
    )
    SELECT CASE WHEN p.known IS NOT NULL THEN 'known' WHEN p.is_accepted THEN 'sent' WHEN p.status IS NULL THEN 'none'
            WHEN p.holder_pid IS NOT NULL THEN 'unreadable' WHEN NOT p.is_candidate THEN 'ended' ELSE 'full' END,
        CASE WHEN p.known IS NOT NULL THEN p.known WHEN p.is_accepted THEN p.position
            WHEN p.holder_pid IS NOT NULL THEN p.holder_format ELSE p.unread END,
        p.status::text, p.kept,
        CASE WHEN p.known IS NOT NULL THEN coalesce(p.known_after_cancel, p.was_cancelled) ELSE p.was_cancelled END, p.holder_host, p.holder_pid
    FROM placed p ORDER BY p.nth;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_records_v3(at_ bigint, space_ text, ids_ text[], bodies_ text[], replaces_ boolean, max_ bigint)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    count_ bigint;
    new_ bigint;
BEGIN
    INSERT INTO "outlast".record_counts (space, n) VALUES (space_, 0) ON CONFLICT DO NOTHING;
    SELECT c.n INTO count_ FROM "outlast".record_counts c WHERE c.space = space_ FOR NO KEY UPDATE;
    SELECT count(*) INTO new_ FROM unnest(ids_) AS i (id)
    WHERE NOT EXISTS (SELECT 1 FROM "outlast".records r WHERE r.space = space_ AND r.id = i.id);
    IF new_ > 0 AND count_ + new_ > max_ THEN
        RETURN NULL;
    END IF;
    INSERT INTO "outlast".records AS r (space, id, body, at)
    SELECT space_, i.id, i.body, now_ FROM unnest(ids_, bodies_) AS i (id, body)
    ON CONFLICT (space, id) DO UPDATE SET body = excluded.body, at = excluded.at WHERE replaces_;
    IF new_ > 0 THEN
        UPDATE "outlast".record_counts c SET n = c.n + new_ WHERE c.space = space_;
    END IF;
    RETURN new_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_replies_v3(now_ bigint, refused_ integer[], replies_ json, bodies_ text[], raws_ bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    INSERT INTO "outlast".replies (run, message, at, outcome, codec, body, raw)
    SELECT n.run, n.message, now_, n.outcome, n.codec, n.body, n.raw
    FROM ROWS FROM (
        json_to_recordset(replies_) AS (turn_nth integer, run text, message text, outcome text, codec text),
        unnest(bodies_), unnest(raws_)
    ) WITH ORDINALITY AS n (turn_nth, run, message, outcome, codec, body, raw, nth)
    WHERE n.turn_nth <> ALL (refused_) ORDER BY n.nth
    ON CONFLICT DO NOTHING;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_starts_v2(now_ bigint, starts_ json, events_ text[], refused_ integer[])
 RETURNS TABLE(nth integer, code text, run text, workflow text, added bigint, lowest bigint, highest bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    put_ record;
BEGIN
    PERFORM "outlast".free_keys_v2(now_, starts_);
    WITH given AS (
        SELECT a.*, first_value(a.nth) OVER w AS first_nth, first_value(a.run) OVER w AS first_run,
            first_value(a.workflow) OVER w AS first_workflow, first_value(a.digest) OVER w AS first_digest
        FROM ROWS FROM (
            json_to_recordset(starts_) AS (run text, turn text, born bigint, rules integer, workflow text, version bigint,
                format integer, queue text, priority smallint, key text, digest text, parent text, parent_op bigint,
                awaits boolean, root text, not_before bigint, deadline bigint, tags json, turn_nth integer, refused text),
            unnest(events_)
        ) WITH ORDINALITY AS a (run, turn, born, rules, workflow, version, format, queue, priority, key, digest, parent,
            parent_op, awaits, root, not_before, deadline, tags, turn_nth, refused, events, nth)
        WHERE a.refused IS NULL AND (a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_))
        WINDOW w AS (PARTITION BY a.key ORDER BY a.nth)
    ), asked AS (
        SELECT a.*, CASE WHEN same.id IS NOT NULL THEN 'same'
                WHEN other.id IS NULL AND (a.key IS NULL OR a.nth = a.first_nth) THEN 'new'
                WHEN coalesce(other.workflow, a.first_workflow) = a.workflow
                    AND coalesce(other.key_digest, a.first_digest) = a.digest THEN 'other'
                ELSE 'taken' END AS code,
            coalesce(same.id, other.id, a.first_run) AS there, coalesce(other.workflow, a.first_workflow) AS there_workflow
        FROM given a
        LEFT JOIN LATERAL (SELECT r.id FROM "outlast".runs r WHERE r.id = a.run) same ON true
        LEFT JOIN LATERAL (SELECT r.id, r.workflow, r.key_digest FROM "outlast".runs r WHERE r.key = a.key) other ON true
    ), added AS (
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, key, key_digest, status, turn, next_seq,
            turn_at, created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, a.format, a.queue, a.priority, a.key, a.digest, 'pending', a.turn, 1,
            now_, now_, now_, CASE WHEN a.not_before > now_ THEN a.not_before END,
            CASE WHEN a.not_before > now_ THEN a.not_before ELSE now_ END,
            a.parent, a.parent_op, a.awaits, a.root, a.deadline
        FROM asked a WHERE a.code = 'new' ORDER BY a.key COLLATE "C" NULLS FIRST, a.nth
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), begun AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events FROM asked a WHERE a.code = 'new'
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), tagged AS (
        INSERT INTO "outlast".tags (run, name, value)
        SELECT a.run, t.key, t.value FROM asked a CROSS JOIN LATERAL json_each_text(a.tags) AS t (key, value)
        WHERE a.code = 'new' AND a.tags IS NOT NULL
        ON CONFLICT DO NOTHING
    ), there AS (
        SELECT a.nth, a.code, a.there, a.there_workflow FROM asked a WHERE a.code <> 'new'
    )
    SELECT (SELECT count(*) FROM asked a WHERE a.code = 'new') AS new,
        (SELECT array_agg(a.run) FROM asked a WHERE a.code = 'new') AS new_runs, (SELECT count(*) FROM added) AS added,
        (SELECT count(*) FROM begun) AS begun,
        (SELECT max(a.rules) FROM asked a WHERE a.code = 'new') AS rules,
        (SELECT min(a.born) FROM asked a) AS first, (SELECT max(a.born) FROM asked a) AS last,
        (SELECT array_agg(t.nth::integer ORDER BY t.nth) FROM there t) AS nths,
        (SELECT array_agg(t.code ORDER BY t.nth) FROM there t) AS codes,
        (SELECT array_agg(t.there::text ORDER BY t.nth) FROM there t) AS runs,
        (SELECT array_agg(t.there_workflow::text ORDER BY t.nth) FROM there t) AS workflows
    INTO put_;
    IF put_.added <> put_.new THEN
        RAISE EXCEPTION 'another try of a start was faster' USING ERRCODE = '40001';
    END IF;
    IF put_.new > 0 THEN
        PERFORM "outlast".check_rules_v2(put_.rules);
    END IF;
    IF put_.begun <> put_.new THEN
        PERFORM "outlast".forget_v2(put_.new_runs);
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events
        FROM ROWS FROM (json_to_recordset(starts_) AS (run text, turn text), unnest(events_)) AS a (run, turn, events)
        WHERE a.run = ANY (put_.new_runs);
    END IF;
    IF put_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.run, t.workflow, NULL::bigint, NULL::bigint, NULL::bigint
        FROM unnest(put_.nths, put_.codes, put_.runs, put_.workflows) AS t (nth, code, run, workflow);
    END IF;
    nth := 0; code := 'added'; run := NULL; workflow := NULL; added := put_.new;
    lowest := put_.first - now_ / 1000; highest := put_.last - now_ / 1000;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_starts_v3(now_ bigint, starts_ json, events_ text[], refused_ integer[])
 RETURNS TABLE(nth integer, code text, run text, workflow text, added bigint, lowest bigint, highest bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    put_ record;
BEGIN
    PERFORM "outlast".free_keys_v3(now_, starts_);
    WITH given AS (
        SELECT a.*, first_value(a.nth) OVER w AS first_nth, first_value(a.run) OVER w AS first_run,
            first_value(a.workflow) OVER w AS first_workflow, first_value(a.digest) OVER w AS first_digest
        FROM ROWS FROM (
            json_to_recordset(starts_) AS (run text, turn text, born bigint, rules integer, workflow text, version bigint,
                format integer, queue text, priority smallint, key text, digest text, parent text, parent_op bigint,
                awaits boolean, root text, not_before bigint, deadline bigint, tags json, turn_nth integer, refused text),
            unnest(events_)
        ) WITH ORDINALITY AS a (run, turn, born, rules, workflow, version, format, queue, priority, key, digest, parent,
            parent_op, awaits, root, not_before, deadline, tags, turn_nth, refused, events, nth)
        WHERE a.refused IS NULL AND (a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_))
        WINDOW w AS (PARTITION BY a.key ORDER BY a.nth)
    ), asked AS (
        SELECT a.*, CASE WHEN same.id IS NOT NULL THEN 'same'
                WHEN other.id IS NULL AND (a.key IS NULL OR a.nth = a.first_nth) THEN 'new'
                WHEN coalesce(other.workflow, a.first_workflow) = a.workflow
                    AND coalesce(other.key_digest, a.first_digest) = a.digest THEN 'other'
                ELSE 'taken' END AS code,
            coalesce(same.id, other.id, a.first_run) AS there, coalesce(other.workflow, a.first_workflow) AS there_workflow
        FROM given a
        LEFT JOIN LATERAL (SELECT r.id FROM "outlast".runs r WHERE r.id = a.run) same ON true
        LEFT JOIN LATERAL (SELECT r.id, r.workflow, r.key_digest FROM "outlast".runs r WHERE r.key = a.key) other ON true
    ), added AS (
        INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, key, key_digest, status, turn, next_seq,
            turn_at, created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, a.format, a.queue, a.priority, a.key, a.digest, 'pending', a.turn, 1,
            now_, now_, now_, CASE WHEN a.not_before > now_ THEN a.not_before END,
            CASE WHEN a.not_before > now_ THEN a.not_before ELSE now_ END,
            a.parent, a.parent_op, a.awaits, a.root, a.deadline
        FROM asked a WHERE a.code = 'new' ORDER BY a.key COLLATE "C" NULLS FIRST, a.nth
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), begun AS (
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events FROM asked a WHERE a.code = 'new'
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), tagged AS (
        INSERT INTO "outlast".tags (run, name, value)
        SELECT a.run, t.key, t.value FROM asked a CROSS JOIN LATERAL json_each_text(a.tags) AS t (key, value)
        WHERE a.code = 'new' AND a.tags IS NOT NULL
        ON CONFLICT DO NOTHING
    ), there AS (
        SELECT a.nth, a.code, a.there, a.there_workflow FROM asked a WHERE a.code <> 'new'
    )
    SELECT (SELECT count(*) FROM asked a WHERE a.code = 'new') AS new,
        (SELECT array_agg(a.run) FROM asked a WHERE a.code = 'new') AS new_runs, (SELECT count(*) FROM added) AS added,
        (SELECT count(*) FROM begun) AS begun,
        (SELECT max(a.rules) FROM asked a WHERE a.code = 'new') AS rules,
        (SELECT min(a.born) FROM asked a) AS first, (SELECT max(a.born) FROM asked a) AS last,
        (SELECT array_agg(t.nth::integer ORDER BY t.nth) FROM there t) AS nths,
        (SELECT array_agg(t.code ORDER BY t.nth) FROM there t) AS codes,
        (SELECT array_agg(t.there::text ORDER BY t.nth) FROM there t) AS runs,
        (SELECT array_agg(t.there_workflow::text ORDER BY t.nth) FROM there t) AS workflows
    INTO put_;
    IF put_.added <> put_.new THEN
        RAISE EXCEPTION 'another try of a start was faster' USING ERRCODE = '40001';
    END IF;
    IF put_.new > 0 THEN
        PERFORM "outlast".check_rules_v3(put_.rules);
    END IF;
    IF put_.begun <> put_.new THEN
        PERFORM "outlast".forget_v3(put_.new_runs);
        INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events
        FROM ROWS FROM (json_to_recordset(starts_) AS (run text, turn text), unnest(events_)) AS a (run, turn, events)
        WHERE a.run = ANY (put_.new_runs);
    END IF;
    IF put_.nths IS NOT NULL THEN
        RETURN QUERY SELECT t.nth, t.code, t.run, t.workflow, NULL::bigint, NULL::bigint, NULL::bigint
        FROM unnest(put_.nths, put_.codes, put_.runs, put_.workflows) AS t (nth, code, run, workflow);
    END IF;
    nth := 0; code := 'added'; run := NULL; workflow := NULL; added := put_.new;
    lowest := put_.first - now_ / 1000; highest := put_.last - now_ / 1000;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_tags_v2(run_ text, tags_ json)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO "outlast".tags (run, name, value)
    SELECT run_, tag.key, tag.value FROM json_each_text(tags_) AS tag (key, value)
    ON CONFLICT (run, name) DO UPDATE SET value = excluded.value;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_tags_v3(run_ text, tags_ json)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
BEGIN
    INSERT INTO "outlast".tags (run, name, value)
    SELECT run_, tag.key, tag.value FROM json_each_text(tags_) AS tag (key, value)
    ON CONFLICT (run, name) DO UPDATE SET value = excluded.value;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_tokens_v3(now_ bigint, refused_ integer[], freed_ json, taken_ json, bodies_ text[], raws_ bytea[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    new_ record;
    owner_ text;
    is_taken_ boolean;
    -- Messages of the engine are not limited.
    limits_ CONSTANT bigint[] := ARRAY[9223372036854775807, 9223372036854775807];
BEGIN
    PERFORM 1 FROM "outlast".tokens t WHERE t.hash IN (
        SELECT f.hash FROM json_to_recordset(freed_) AS f (hash text)
        UNION ALL SELECT n.hash FROM json_to_recordset(taken_) AS n (hash text))
    ORDER BY t.hash FOR UPDATE;
    UPDATE "outlast".tokens t SET kept_until = f.kept_until
    FROM json_to_recordset(freed_) AS f (turn_nth integer, hash text, run text, op bigint, kept_until bigint)
    WHERE f.turn_nth <> ALL (refused_) AND f.kept_until IS NOT NULL AND t.hash = f.hash AND t.run = f.run AND t.op = f.op
        AND t.kept_until IS NULL;
    DELETE FROM "outlast".tokens t
    USING json_to_recordset(freed_) AS f (turn_nth integer, hash text, run text, op bigint, kept_until bigint)
    WHERE f.turn_nth <> ALL (refused_) AND f.kept_until IS NULL AND t.hash = f.hash AND t.run = f.run AND t.op = f.op
        AND t.kept_until IS NULL;
    FOR new_ IN
        SELECT * FROM ROWS FROM (
            json_to_recordset(taken_) AS (turn_nth integer, hash text, run text, op bigint, hook text, keep_for bigint,
                webhook text, codec text, answer text, notify boolean, ends boolean, failure text, mark_run text),
            unnest(bodies_), unnest(raws_)
        ) AS n (turn_nth, hash, run, op, hook, keep_for, webhook, codec, answer, notify, ends, failure, mark_run, body, raw)
        WHERE n.turn_nth <> ALL (refused_) ORDER BY n.hash COLLATE "C", n.turn_nth
    LOOP
        CONTINUE WHEN EXISTS (SELECT 1 FROM "outlast".inbox i WHERE i.run = new_.run AND i.id = new_.answer);
        owner_ := NULL;
        LOOP
            INSERT INTO "outlast".tokens (hash, run, op, hook, opened_at, keep_for, webhook, codec, body, raw)
            VALUES (new_.hash, new_.run, new_.op, new_.hook, now_, new_.keep_for, new_.webhook, new_.codec, new_.body,
                new_.raw)
            ON CONFLICT (hash) DO NOTHING;
            is_taken_ := FOUND;
            EXIT WHEN is_taken_;
            -- A statement of its own: the insert may have waited for another transaction, which has also started its run.
            -- Only a new snapshot contains that run.
            UPDATE "outlast".tokens t SET run = new_.run, op = new_.op, hook = new_.hook, opened_at = now_,
                keep_for = new_.keep_for, kept_until = NULL, webhook = new_.webhook, codec = new_.codec, body = new_.body,
                raw = new_.raw
            WHERE t.hash = new_.hash AND (t.run = new_.run OR CASE WHEN t.kept_until IS NOT NULL THEN t.kept_until <= now_
                ELSE NOT EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.id = t.run
                    AND (r.ended_at IS NULL OR r.ended_at + t.keep_for > now_)) END);
            is_taken_ := FOUND;
            EXIT WHEN is_taken_;
            SELECT t.run INTO owner_ FROM "outlast".tokens t WHERE t.hash = new_.hash;
            -- Without an owner it was freed meanwhile.
            EXIT WHEN owner_ IS NOT NULL;
        END LOOP;
        CONTINUE WHEN new_.ends OR is_taken_ AND new_.notify IS NOT TRUE;
        PERFORM 1 FROM "outlast".put_messages_v3(now_, json_build_array(json_build_object('run', new_.run,
                'id', new_.answer, 'op', new_.op, 'turn_nth', new_.turn_nth, 'format', 3,
                'kind', CASE WHEN is_taken_ THEN 'token_taken' ELSE 'refused' END)),
            ARRAY[CASE WHEN NOT is_taken_ THEN replace(new_.failure, new_.mark_run, owner_) END], ARRAY[NULL::bytea],
            limits_, '{}');
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.put_workflow_writes_v3(now_ bigint, refused_ integer[], writes_ json, packs_ text[], states_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    write_ record;
BEGIN
    PERFORM 1 FROM "outlast".streams s
    WHERE s.run IN (SELECT w.run FROM json_to_recordset(writes_) AS w (run text)) ORDER BY s.run, s.name FOR UPDATE;
    FOR write_ IN
        SELECT * FROM ROWS FROM (
            json_to_recordset(writes_) AS (turn_nth integer, run text, turn text, stream text, n bigint, keep bigint,
                closes boolean, dropped bigint, late bigint),
            unnest(packs_)
        ) AS w (turn_nth, run, turn, stream, n, keep, closes, dropped, late, pack)
        WHERE w.turn_nth <> ALL (refused_)
        ORDER BY w.run, w.stream COLLATE "C"
    LOOP
        CONTINUE WHEN NOT "outlast".open_stream_v3(write_.run, write_.stream, limits_[1]);
        UPDATE "outlast".streams s SET turn = write_.turn, dropped = s.dropped + write_.dropped, late = s.late + write_.late
        WHERE s.run = write_.run AND s.name = write_.stream AND s.turn IS DISTINCT FROM write_.turn;
        CONTINUE WHEN NOT FOUND;
        PERFORM "outlast".append_chunks_v3(now_, write_.run, write_.stream, NULL, NULL, write_.n, write_.keep,
            CASE WHEN write_.closes THEN 'workflow' END, write_.pack, limits_[2]);
    END LOOP;
    INSERT INTO "outlast".states AS s (run, turn, at, version, dropped, codec, body, raw)
    SELECT w.run, w.turn, now_, (w.body IS NOT NULL OR w.raw IS NOT NULL)::integer, w.dropped, w.codec, w.body, w.raw
    FROM ROWS FROM (
        json_to_recordset(states_) AS (turn_nth integer, run text, turn text, dropped bigint, codec text),
        unnest(bodies_), unnest(raws_)
    ) AS w (turn_nth, run, turn, dropped, codec, body, raw)
    WHERE w.turn_nth <> ALL (refused_) ORDER BY w.run
    ON CONFLICT (run) DO UPDATE SET turn = excluded.turn, dropped = s.dropped + excluded.dropped,
        version = s.version + excluded.version,
        at = CASE WHEN excluded.version = 0 THEN s.at ELSE excluded.at END,
        codec = CASE WHEN excluded.version = 0 THEN s.codec ELSE excluded.codec END,
        body = CASE WHEN excluded.version = 0 THEN s.body ELSE excluded.body END,
        raw = CASE WHEN excluded.version = 0 THEN s.raw ELSE excluded.raw END
    WHERE s.turn <> excluded.turn;
END
$function$

CREATE OR REPLACE FUNCTION outlast.ready_v2(session_ text, now_ bigint, limit_ integer, preference_ bigint, priority_age_ bigint, line_ outlast.line_v2, OUT ids text[], OUT ranks bigint[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    SELECT array_agg(f.id::text), array_agg(f.ready_at - line_.priority::bigint * priority_age_) INTO ids, ranks
    FROM (
        SELECT r.id, r.ready_at FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at <= now_
            AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
        ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f;
END
$function$

CREATE OR REPLACE FUNCTION outlast.ready_v3(session_ text, now_ bigint, limit_ integer, preference_ bigint, priority_age_ bigint, line_ outlast.line_v3, OUT ids text[], OUT ranks bigint[])
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    SELECT array_agg(f.id::text), array_agg(f.ready_at - line_.priority::bigint * priority_age_) INTO ids, ranks
    FROM (
        SELECT r.id, r.ready_at FROM "outlast".runs r
        WHERE r.queue = line_.queue AND r.workflow = line_.workflow AND r.version = line_.version
            AND r.format = line_.format AND r.failed_builds = line_.failed_builds AND r.crash_class = line_.crash_class
            AND r.priority = line_.priority AND r.ready_at IS NOT NULL AND NOT r.ends_without_code AND r.ready_at <= now_
            AND (r.preferred IS NULL OR r.preferred = session_ OR r.ready_at <= now_ - preference_
                OR NOT EXISTS (SELECT 1 FROM "outlast".sessions s WHERE s.id = r.preferred AND s.ended_at IS NULL))
        ORDER BY r.ready_at, r.id LIMIT limit_ FOR NO KEY UPDATE OF r SKIP LOCKED) f;
END
$function$

CREATE OR REPLACE FUNCTION outlast.record_outcome_v3(session_ text, at_ bigint, run_ text, id_ text, format_ integer, body_ text, attempt_ text)
 RETURNS TABLE(number bigint, moment bigint)
 LANGUAGE plpgsql
 SET lock_timeout TO '1000'
 SET enable_seqscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
BEGIN
    IF current_setting('outlast.attempt', true) IS DISTINCT FROM attempt_ THEN
        RAISE EXCEPTION 'the step has ended its transaction' USING ERRCODE = 'OL003';
    END IF;
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session has ended' USING ERRCODE = 'OL002';
    END IF;
    SELECT r.sent + 1 INTO number FROM "outlast".runs r WHERE r.id = run_ AND r.owner = session_ FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the session does not hold the run' USING ERRCODE = 'OL002';
    END IF;
    -- Read the clock after the row is locked: it is later than every turn that has fired a timer.
    moment := coalesce(at_, "outlast".clock_v3());
    INSERT INTO "outlast".inbox (run, position, id, at, kind, body) VALUES (run_, number, id_, moment, 'attempted', body_);
    UPDATE "outlast".runs r SET sent = number, updated_at = moment, format = greatest(r.format, format_) WHERE r.id = run_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.refresh_rules_v2()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    known_ integer;
BEGIN
    PERFORM 1 FROM "outlast".settings FOR NO KEY UPDATE;
    known_ := (SELECT min(s.rules) FROM "outlast".sessions s WHERE s.ended_at IS NULL);
    UPDATE "outlast".settings SET rules = known_ WHERE rules IS DISTINCT FROM known_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.refresh_rules_v3()
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    known_ integer;
BEGIN
    PERFORM 1 FROM "outlast".settings FOR NO KEY UPDATE;
    known_ := (SELECT min(s.rules) FROM "outlast".sessions s WHERE s.ended_at IS NULL);
    UPDATE "outlast".settings SET rules = known_ WHERE rules IS DISTINCT FROM known_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.remove_session_v2(id_ text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".sessions s WHERE s.id = id_ AND s.ended_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.owner = id_);
    DELETE FROM "outlast".heartbeats h USING (
        SELECT k.run, k.op FROM "outlast".heartbeats k JOIN "outlast".runs r ON r.id = k.run
        WHERE r.ended_at IS NOT NULL FOR UPDATE OF k SKIP LOCKED) old
    WHERE h.run = old.run AND h.op = old.op;
END
$function$

CREATE OR REPLACE FUNCTION outlast.remove_session_v3(id_ text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    DELETE FROM "outlast".sessions s WHERE s.id = id_ AND s.ended_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM "outlast".runs r WHERE r.owner = id_);
    DELETE FROM "outlast".heartbeats h USING (
        SELECT k.run, k.op FROM "outlast".heartbeats k JOIN "outlast".runs r ON r.id = k.run
        WHERE r.ended_at IS NOT NULL FOR UPDATE OF k SKIP LOCKED) old
    WHERE h.run = old.run AND h.op = old.op;
END
$function$

CREATE OR REPLACE FUNCTION outlast.reopen_v3(at_ bigint, id_ text, message_ text, events_ bigint, replay_from_ bigint, deadline_ bigint, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[], OUT status text, OUT marks integer, OUT events bigint, OUT moment bigint, OUT place bigint)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    status_ text; marks_ integer; next_ bigint; now_ bigint; position_ bigint;
BEGIN
    SELECT r.status, r.marks, r.next_seq INTO status_, marks_, next_
    FROM "outlast".runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    now_ := coalesce(at_, "outlast".clock_v3());
    SELECT i.position INTO position_ FROM "outlast".inbox i WHERE i.run = id_ AND i.id = message_;
    IF position_ IS NULL AND status_ IN ('failed', 'cancelled') AND marks_ & 4 = 0 AND next_ = events_
        AND (deadline_ IS NULL OR deadline_ > now_) THEN
        UPDATE "outlast".runs r SET status = 'pending', owner = NULL, preferred = NULL, ended_at = NULL, wake_at = NULL,
            waits = '[]', last_terminate = 0, last_cancel = 0, cancel_requested = false, ready_at = now_, crashes = 0, deadline = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL, failed_builds = '', failed_at = 0, retrying = false, failure = NULL, fingerprint = NULL
        WHERE r.id = id_;
        UPDATE "outlast".runs r SET replay_from = replay_from_, deadline = deadline_ WHERE r.id = id_;
        SELECT p.number INTO position_
        FROM "outlast".put_messages_v3(now_, messages_, bodies_, raws_, limits_, '{}') p;
        PERFORM "outlast".count_move_v3(status_, 'pending');
    END IF;
    status := status_; marks := marks_; events := next_; moment := now_; place := position_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.restart_streams_v3(now_ bigint, run_ text, op_ bigint, attempt_ text, session_ text, count_ bigint)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    old_ record;
    next_ bigint;
BEGIN
    FOR old_ IN SELECT w.stream, w.first FROM "outlast".stream_writers w
        WHERE w.run = run_ AND w.op = op_ AND w.attempt <> attempt_ ORDER BY w.stream
    LOOP
        UPDATE "outlast".streams s SET next = s.next + 1, closed_by = nullif(s.closed_by, op_::text)
        WHERE s.run = run_ AND s.name = old_.stream RETURNING s.next INTO next_;
        INSERT INTO "outlast".chunks (run, stream, first, next, at, op, attempt, entries)
        VALUES (run_, old_.stream, next_ - 1, next_, now_, op_, attempt_, '[{"restarted":' || old_.first || '}]');
        UPDATE "outlast".stream_writers w SET attempt = attempt_, session = session_, count = count_, first = next_, next = 0
        WHERE w.run = run_ AND w.op = op_ AND w.stream = old_.stream;
        PERFORM "outlast".trim_stream_v3(run_, old_.stream);
    END LOOP;
END
$function$

CREATE OR REPLACE FUNCTION outlast.resume_v2(at_ bigint, id_ text, OUT status text, OUT is_resumed boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    SELECT r.status, r.owner IS NULL AND r.ended_at IS NULL INTO status, is_resumed
    FROM "outlast".runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    IF is_resumed THEN
        UPDATE "outlast".runs r SET failed_builds = '', failed_at = 0,
            ready_at = CASE WHEN r.status = 'stuck' THEN coalesce(at_, "outlast".clock_v2()) ELSE r.ready_at END
        WHERE r.id = id_;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.resume_v3(at_ bigint, id_ text, OUT status text, OUT is_resumed boolean)
 RETURNS record
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    SELECT r.status, r.owner IS NULL AND r.ended_at IS NULL INTO status, is_resumed
    FROM "outlast".runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    IF is_resumed THEN
        UPDATE "outlast".runs r SET failed_builds = '', failed_at = 0,
            ready_at = CASE WHEN r.status = 'stuck' AND r.marks & 1 = 0 THEN coalesce(at_, "outlast".clock_v3()) ELSE r.ready_at END
        WHERE r.id = id_;
    END IF;
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
    SELECT "outlast".send_to(run, hook, "outlast".compact_v3(payload), key)
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
    PERFORM "outlast".check_payload_v3(payload_);
    id_ := 'msg_' || "outlast".base32_v3(coalesce("outlast".digest_v3(run || ' ' || key), "outlast".new_bits_v3("outlast".clock_v3())));
    SELECT s.code, s.number, s.status, s.kept INTO answer_ FROM "outlast".send_v3(NULL, ARRAY[run],
        json_build_array(json_build_object('run', run, 'id', id_, 'kind', 'hook', 'name', "outlast".stored_v3(hook))),
        ARRAY[payload_], ARRAY[NULL::bytea], ARRAY[10000, 10000]::bigint[]) AS s;
    IF answer_.code = 'none' THEN
        RAISE EXCEPTION 'there is no run %', run USING ERRCODE = '02000', HINT = 'check the id';
    ELSIF answer_.code = 'ended' THEN
        RAISE EXCEPTION 'run % has ended, it is %', run, answer_.status USING ERRCODE = '55000';
    ELSIF answer_.code = 'full' THEN
        RAISE EXCEPTION 'the inbox of run % is full: % messages are unread and % payloads kept', run, answer_.number, answer_.kept
            USING ERRCODE = '54000', HINT = 'wait until the run has read some';
    END IF;
    PERFORM "outlast".hint_v3();
END
$function$

CREATE OR REPLACE FUNCTION outlast.send_to_token_v3(at_ bigint, hash_ text, run_ text, id_ text, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
 RETURNS TABLE(code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    is_open_ boolean;
BEGIN
    SELECT r.ended_at IS NULL INTO is_open_ FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    IF is_open_ AND NOT EXISTS (SELECT 1 FROM "outlast".inbox i WHERE i.run = run_ AND i.id = id_)
        AND NOT EXISTS (SELECT 1 FROM "outlast".tokens t WHERE t.hash = hash_ AND t.run = run_ AND t.kept_until IS NULL)
    THEN
        code := 'closed';
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY SELECT p.* FROM "outlast".put_messages_v3(
        coalesce(at_, "outlast".clock_v3()), messages_, bodies_, raws_, limits_, '{}') p;
END
$function$

CREATE OR REPLACE FUNCTION outlast.send_v2(at_ bigint, runs_ text[], messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
 RETURNS TABLE(code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
    -- Read the clock after the rows are locked: it is later than every turn that has fired a timer.
    RETURN QUERY SELECT p.* FROM "outlast".put_messages_v2(
        coalesce(at_, "outlast".clock_v2()), messages_, bodies_, raws_, limits_, '{}') p;
END
$function$

CREATE OR REPLACE FUNCTION outlast.send_v3(at_ bigint, runs_ text[], messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
 RETURNS TABLE(code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM "outlast".runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
    -- Read the clock after the rows are locked: it is later than every turn that has fired a timer.
    RETURN QUERY SELECT p.* FROM "outlast".put_messages_v3(
        coalesce(at_, "outlast".clock_v3()), messages_, bodies_, raws_, limits_, '{}') p;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_and_send_v3(at_ bigint, start_ json, events_ text[], own_ text, message_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
 RETURNS TABLE(nth integer, code text, run text, workflow text, moment bigint, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    started_ record;
    run_ text := own_;
    now_ bigint;
    is_taken_ boolean := false;
BEGIN
    FOR started_ IN SELECT * FROM "outlast".start_v3(at_, start_, events_, false) LOOP
        nth := started_.nth; code := started_.code; run := started_.run; workflow := started_.workflow;
        moment := started_.moment;
        RETURN NEXT;
        IF started_.nth = 0 THEN
            now_ := started_.moment;
        ELSE
            run_ := started_.run;
            is_taken_ := started_.code = 'taken';
        END IF;
    END LOOP;
    IF is_taken_ THEN
        RETURN;
    END IF;
    PERFORM 1 FROM "outlast".runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    -- Read the clock after the row is locked: it is later than every turn that has fired a timer.
    now_ := coalesce(at_, greatest(now_, "outlast".clock_v3()));
    RETURN QUERY SELECT 2, p.code, run_, NULL::text, now_, p.number, p.status, p.kept, p.was_cancelled, p.holder_host,
        p.holder_pid
    FROM "outlast".put_messages_v3(now_, json_build_array((message_::jsonb || jsonb_build_object('run', run_))::json),
        bodies_, raws_, limits_, '{}') p;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_one_v2(at_ bigint, start_ json, events_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    a record;
    wake_at_ bigint;
BEGIN
    SELECT * INTO a FROM json_to_record(start_) AS a (run text, turn text, born bigint, rules integer, workflow text,
        version bigint, format integer, queue text, priority smallint, parent text, parent_op bigint, awaits boolean,
        root text, not_before bigint, deadline bigint);
    wake_at_ := CASE WHEN a.not_before > now_ THEN a.not_before END;
    PERFORM "outlast".check_rules_v2(a.rules);
    INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
    VALUES (a.run, a.workflow, a.version, a.format, a.queue, a.priority, 'pending', a.turn, 1, now_, now_, now_, wake_at_,
        coalesce(wake_at_, now_), a.parent, a.parent_op, a.awaits, a.root, a.deadline)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    VALUES (a.run, 0, 1, a.turn, now_, '', events_);
    PERFORM "outlast".widen_v2(a.born - now_ / 1000, a.born - now_ / 1000);
    PERFORM "outlast".count_move_v2(NULL, 'pending');
    RETURN now_;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_one_v3(at_ bigint, start_ json, events_ text)
 RETURNS bigint
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    a record;
    wake_at_ bigint;
BEGIN
    SELECT * INTO a FROM json_to_record(start_) AS a (run text, turn text, born bigint, rules integer, workflow text,
        version bigint, format integer, queue text, priority smallint, parent text, parent_op bigint, awaits boolean,
        root text, not_before bigint, deadline bigint);
    wake_at_ := CASE WHEN a.not_before > now_ THEN a.not_before END;
    PERFORM "outlast".check_rules_v3(a.rules);
    INSERT INTO "outlast".runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
    VALUES (a.run, a.workflow, a.version, a.format, a.queue, a.priority, 'pending', a.turn, 1, now_, now_, now_, wake_at_,
        coalesce(wake_at_, now_), a.parent, a.parent_op, a.awaits, a.root, a.deadline)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO "outlast".turns (run, seq, next_seq, id, at, build, events)
    VALUES (a.run, 0, 1, a.turn, now_, '', events_);
    PERFORM "outlast".widen_v3(a.born - now_ / 1000, a.born - now_ / 1000);
    PERFORM "outlast".count_move_v3(NULL, 'pending');
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
    SELECT "outlast".start_run(workflow, "outlast".compact_v3(input), key, version, queue, priority, not_before, deadline, tags, headers)
$function$

CREATE OR REPLACE FUNCTION outlast.start_run(workflow text, input text DEFAULT 'null'::text, key text DEFAULT NULL::text, version bigint DEFAULT 1, queue text DEFAULT 'default'::text, priority integer DEFAULT 0, not_before timestamp with time zone DEFAULT NULL::timestamp with time zone, deadline timestamp with time zone DEFAULT NULL::timestamp with time zone, tags json DEFAULT NULL::json, headers json DEFAULT NULL::json)
 RETURNS text
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_variable
DECLARE
    now_ bigint := "outlast".clock_v3();
    bits_ numeric := "outlast".new_bits_v3(now_);
    input_ text := coalesce(input::json::text, 'null');
    run_ text := 'run_' || "outlast".base32_v3(bits_);
    deadline_ bigint := (extract(epoch FROM deadline) * 1000000)::bigint;
    event_ text;
    names_ text[];
    values_ text[];
    -- The newest rules that this schema knows, or lower ones if a joined worker knows only those.
    rules_ integer := least(2, (SELECT s.rules FROM "outlast".settings s));
    start_ json;
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
    ELSIF deadline <= not_before THEN
        RAISE EXCEPTION 'the deadline % is not after %, when the run may begin', deadline, not_before USING ERRCODE = '22023';
    ELSIF octet_length(headers::text) > 16384 THEN
        RAISE EXCEPTION 'the headers have more than 16384 bytes' USING ERRCODE = '54000';
    END IF;
    PERFORM "outlast".check_payload_v3(input_);
    SELECT coalesce(array_agg(t.key), '{}'), coalesce(array_agg(t.value), '{}') INTO names_, values_
    FROM json_each_text(tags) AS t (key, value);
    IF cardinality(names_) > 32 OR EXISTS (SELECT 1 FROM unnest(names_, values_) AS t (name, value)
        WHERE octet_length(t.name) NOT BETWEEN 1 AND 128 OR octet_length(t.value) > 256 OR t.value IS NULL) THEN
        RAISE EXCEPTION 'there are more than 32 tags, or one that is too long or null' USING ERRCODE = '22023';
    END IF;
    event_ := '{"kind":"run_started","workflow":' || to_json(workflow) || ',"version":' || version || ',"format":' || least(rules_, 2)
        || CASE WHEN rules_ > 1 THEN ',"rules":' || rules_ ELSE '' END
        || coalesce(',"key":' || to_json(key), '')
        || CASE WHEN queue = 'default' THEN '' ELSE ',"queue":' || to_json(queue) END
        || CASE WHEN priority = 0 THEN '' ELSE ',"priority":' || priority END
        || ',"input":' || input_
        || coalesce(',"headers":' || headers, '')
        || CASE WHEN cardinality(names_) = 0 THEN '' ELSE ',"tags":' || json_object(names_, values_) END
        || coalesce(',"deadline":' || deadline_, '') || '}';
    start_ := json_build_object('run', run_, 'turn', 'turn_' || "outlast".base32_v3("outlast".new_bits_v3(now_)),
        'born', now_ / 1000, 'rules', rules_, 'workflow', "outlast".stored_v3(workflow), 'version', version,
        'format', least(rules_, 2), 'queue', "outlast".stored_v3(queue), 'priority', priority,
        'key', "outlast".stored_v3(key), 'digest', CASE WHEN key IS NOT NULL THEN "outlast".hex_v3("outlast".digest_v3(input_)) END,
        'not_before', (extract(epoch FROM not_before) * 1000000)::bigint, 'deadline', deadline_,
        'tags', CASE WHEN cardinality(names_) > 0 THEN json_object(
            ARRAY(SELECT "outlast".stored_v3(t.name) FROM unnest(names_) AS t (name)),
            ARRAY(SELECT "outlast".stored_v3(t.value) FROM unnest(values_) AS t (value))) END);
    SELECT s.code, s.run, s.workflow INTO answer_
    FROM "outlast".start_v3(NULL, json_build_array(start_), ARRAY['[' || event_ || ']'], true) AS s WHERE s.nth = 1;
    IF answer_.code = 'taken' THEN
        RAISE EXCEPTION 'the key "%" names run % of workflow "%", with another workflow or input',
            key, answer_.run, replace(answer_.workflow, U&'\E0001', U&'\E000') USING ERRCODE = '23505', HINT = 'choose another key';
    END IF;
    PERFORM "outlast".hint_v3();
    RETURN coalesce(answer_.run, run_);
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_v2(at_ bigint, starts_ json, events_ text[], appends_ boolean)
 RETURNS TABLE(nth integer, code text, run text, workflow text, moment bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    put_ record;
BEGIN
    FOR put_ IN SELECT * FROM "outlast".put_starts_v2(now_, starts_, events_, '{}') LOOP
        IF put_.nth > 0 THEN
            nth := put_.nth; code := put_.code; run := put_.run; workflow := put_.workflow; moment := NULL;
            RETURN NEXT;
        ELSIF put_.added > 0 AND appends_ THEN
            INSERT INTO "outlast".unmerged (status, n, lowest, highest)
            VALUES ('pending', put_.added, put_.lowest, put_.highest);
        ELSIF put_.added > 0 THEN
            -- Lock these rows after the keys, for which this statement may have waited.
            PERFORM "outlast".widen_v2(put_.lowest, put_.highest);
            PERFORM "outlast".count_v2(ARRAY['pending'], ARRAY[put_.added]);
        END IF;
    END LOOP;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.start_v3(at_ bigint, starts_ json, events_ text[], appends_ boolean)
 RETURNS TABLE(nth integer, code text, run text, workflow text, moment bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    put_ record;
BEGIN
    FOR put_ IN SELECT * FROM "outlast".put_starts_v3(now_, starts_, events_, '{}') LOOP
        IF put_.nth > 0 THEN
            nth := put_.nth; code := put_.code; run := put_.run; workflow := put_.workflow; moment := NULL;
            RETURN NEXT;
        ELSIF put_.added > 0 AND appends_ THEN
            INSERT INTO "outlast".unmerged (status, n, lowest, highest)
            VALUES ('pending', put_.added, put_.lowest, put_.highest);
        ELSIF put_.added > 0 THEN
            -- Lock these rows after the keys, for which this statement may have waited.
            PERFORM "outlast".widen_v3(put_.lowest, put_.highest);
            PERFORM "outlast".count_v3(ARRAY['pending'], ARRAY[put_.added]);
        END IF;
    END LOOP;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.stored_v2(text_ text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
BEGIN
    RETURN replace(text_, U&'\E000', U&'\E0001');
END
$function$

CREATE OR REPLACE FUNCTION outlast.stored_v3(text_ text)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE
AS $function$
BEGIN
    RETURN replace(text_, U&'\E000', U&'\E0001');
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep_chunks_v3(rows_ integer)
 RETURNS boolean
 LANGUAGE plpgsql
AS $function$
DECLARE
    runs_ text[];
    swept_ bigint;
BEGIN
    SELECT array_agg(l.run::text) INTO runs_ FROM (SELECT run FROM "outlast".chunk_leftovers ORDER BY run LIMIT 100) l;
    IF runs_ IS NULL THEN
        RETURN false;
    END IF;
    DELETE FROM "outlast".chunks c USING (
        SELECT o.run, o.stream, o.first FROM "outlast".chunks o
        WHERE o.run = ANY (runs_)
            AND NOT EXISTS (SELECT 1 FROM "outlast".streams s WHERE s.run = o.run AND s.name = o.stream)
        LIMIT rows_) old
    WHERE c.run = old.run AND c.stream = old.stream AND c.first = old.first;
    GET DIAGNOSTICS swept_ = ROW_COUNT;
    IF swept_ < rows_ THEN
        DELETE FROM "outlast".chunk_leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM "outlast".chunk_leftovers);
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep_leftovers_v2(rows_ integer)
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
    IF "outlast".sweep_v2(runs_, rows_, true) THEN
        DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM "outlast".leftovers);
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep_leftovers_v3(rows_ integer)
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
    IF "outlast".sweep_v3(runs_, rows_, true) THEN
        DELETE FROM "outlast".leftovers l WHERE l.run = ANY (runs_);
    END IF;
    RETURN EXISTS (SELECT 1 FROM "outlast".leftovers);
END
$function$

CREATE OR REPLACE FUNCTION outlast.sweep_v2(runs_ text[], limit_ integer, may_be_back_ boolean)
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

CREATE OR REPLACE FUNCTION outlast.sweep_v3(runs_ text[], limit_ integer, may_be_back_ boolean)
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

CREATE OR REPLACE FUNCTION outlast.takeover_v2(at_ bigint, id_ text, patience_ bigint, class_max_ integer)
 RETURNS TABLE(session text, moment bigint, ended bigint, unlocked bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v2());
    boot_ bigint := "outlast".boot_v2();
    other_ record;
    is_free_ boolean;
    is_late_ boolean;
    ended_ bigint := 0;
    unlocked_ bigint := 0;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = id_ AND s.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR other_ IN SELECT s.id, s.has_lock, s.expires_at, s.boot, s.time, s.lock_free_since, s.ended_at
        FROM "outlast".sessions s WHERE s.id <> id_ ORDER BY s.id
    LOOP
        IF other_.ended_at IS NOT NULL THEN
            session := other_.id;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A shared lock, so that another takeover at the same time does not mistake it for the session's lock.
        is_free_ := other_.has_lock AND pg_try_advisory_xact_lock_shared("outlast".lock_key_v2(other_.id));
        is_late_ := other_.expires_at <= now_;
        IF at_ IS NULL AND other_.boot <> boot_ THEN
            is_free_ := false;
            is_late_ := is_late_ AND boot_ <= now_ - other_.time;
        END IF;
        IF is_free_ AND NOT is_late_ AND patience_ > 0 THEN
            IF other_.lock_free_since IS NULL THEN
                UPDATE "outlast".sessions s SET lock_free_since = now_ WHERE s.id = other_.id AND s.lock_free_since IS NULL;
            END IF;
            IF other_.lock_free_since IS NULL OR other_.lock_free_since > now_ - patience_ THEN
                unlocked_ := unlocked_ + 1;
                CONTINUE;
            END IF;
        ELSIF NOT is_free_ AND NOT is_late_ THEN
            IF other_.lock_free_since IS NOT NULL THEN
                UPDATE "outlast".sessions s SET lock_free_since = NULL WHERE s.id = other_.id;
            END IF;
            CONTINUE;
        END IF;
        -- Skip it if it has been renewed meanwhile.
        CONTINUE WHEN NOT "outlast".end_session_v2(now_, other_.id, true, other_.expires_at, class_max_);
        ended_ := ended_ + 1;
        session := other_.id;
        RETURN NEXT;
    END LOOP;
    IF ended_ > 0 THEN
        PERFORM "outlast".refresh_rules_v2();
    END IF;
    session := NULL; moment := now_; ended := ended_; unlocked := unlocked_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.takeover_v3(at_ bigint, id_ text, patience_ bigint, class_max_ integer)
 RETURNS TABLE(session text, moment bigint, ended bigint, unlocked bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, "outlast".clock_v3());
    boot_ bigint := "outlast".boot_v3();
    other_ record;
    is_free_ boolean;
    is_late_ boolean;
    ended_ bigint := 0;
    unlocked_ bigint := 0;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = id_ AND s.ended_at IS NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR other_ IN SELECT s.id, s.has_lock, s.expires_at, s.boot, s.time, s.lock_free_since, s.ended_at
        FROM "outlast".sessions s WHERE s.id <> id_ ORDER BY s.id
    LOOP
        IF other_.ended_at IS NOT NULL THEN
            session := other_.id;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- A shared lock, so that another takeover at the same time does not mistake it for the session's lock.
        is_free_ := other_.has_lock AND pg_try_advisory_xact_lock_shared("outlast".lock_key_v3(other_.id));
        is_late_ := other_.expires_at <= now_;
        IF at_ IS NULL AND other_.boot <> boot_ THEN
            is_free_ := false;
            is_late_ := is_late_ AND boot_ <= now_ - other_.time;
        END IF;
        IF is_free_ AND NOT is_late_ AND patience_ > 0 THEN
            IF other_.lock_free_since IS NULL THEN
                UPDATE "outlast".sessions s SET lock_free_since = now_ WHERE s.id = other_.id AND s.lock_free_since IS NULL;
            END IF;
            IF other_.lock_free_since IS NULL OR other_.lock_free_since > now_ - patience_ THEN
                unlocked_ := unlocked_ + 1;
                CONTINUE;
            END IF;
        ELSIF NOT is_free_ AND NOT is_late_ THEN
            IF other_.lock_free_since IS NOT NULL THEN
                UPDATE "outlast".sessions s SET lock_free_since = NULL WHERE s.id = other_.id;
            END IF;
            CONTINUE;
        END IF;
        -- Skip it if it has been renewed meanwhile.
        CONTINUE WHEN NOT "outlast".end_session_v3(now_, other_.id, true, other_.expires_at, class_max_);
        ended_ := ended_ + 1;
        session := other_.id;
        RETURN NEXT;
    END LOOP;
    IF ended_ > 0 THEN
        PERFORM "outlast".refresh_rules_v3();
    END IF;
    session := NULL; moment := now_; ended := ended_; unlocked := unlocked_;
    RETURN NEXT;
END
$function$

CREATE OR REPLACE FUNCTION outlast.trim_stream_v3(run_ text, stream_ text)
 RETURNS void
 LANGUAGE plpgsql
AS $function$
DECLARE
    first_ bigint;
BEGIN
    UPDATE "outlast".streams s SET first = s.next - s.keep_last
    WHERE s.run = run_ AND s.name = stream_ AND s.next - s.keep_last > s.first
    RETURNING s.first INTO first_;
    IF FOUND THEN
        DELETE FROM "outlast".chunks c WHERE c.run = run_ AND c.stream = stream_ AND c.first < first_ AND c.next <= first_;
    END IF;
END
$function$

CREATE OR REPLACE FUNCTION outlast.turns_of_v2(runs_ text[], turns_ json, messages_ json)
 RETURNS integer[]
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN ARRAY(
        SELECT a.nth::integer FROM ROWS FROM (json_to_recordset(turns_) AS (run text)) WITH ORDINALITY AS a (run, nth)
        WHERE a.run = ANY (runs_)
        UNION
        SELECT m.turn_nth FROM json_to_recordset(messages_) AS m (run text, turn_nth integer) WHERE m.run = ANY (runs_));
END
$function$

CREATE OR REPLACE FUNCTION outlast.turns_of_v3(runs_ text[], turns_ json, messages_ json)
 RETURNS integer[]
 LANGUAGE plpgsql
AS $function$
BEGIN
    RETURN ARRAY(
        SELECT a.nth::integer FROM ROWS FROM (json_to_recordset(turns_) AS (run text)) WITH ORDINALITY AS a (run, nth)
        WHERE a.run = ANY (runs_)
        UNION
        SELECT m.turn_nth FROM json_to_recordset(messages_) AS m (run text, turn_nth integer) WHERE m.run = ANY (runs_));
END
$function$

CREATE OR REPLACE FUNCTION outlast.widen_v2(lowest_ bigint, highest_ bigint)
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

CREATE OR REPLACE FUNCTION outlast.widen_v3(lowest_ bigint, highest_ bigint)
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

CREATE OR REPLACE FUNCTION outlast.write_chunks_v3(session_ text, at_ bigint, writes_ json, packs_ text[], limits_ bigint[])
 RETURNS TABLE(nth integer, code text, detail bigint)
 LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    now_ bigint;
    write_ record;
    next_ bigint;
    known_ bigint;
    answer_ record;
BEGIN
    PERFORM 1 FROM "outlast".sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM "outlast".streams s
    WHERE s.run IN (SELECT w.run FROM json_to_recordset(writes_) AS w (run text)) ORDER BY s.run, s.name FOR UPDATE;
    now_ := coalesce(at_, "outlast".clock_v3());
    FOR write_ IN
        SELECT * FROM ROWS FROM (
            json_to_recordset(writes_) AS (run text, stream text, op bigint, attempt text, session text, count bigint,
                first bigint, n bigint, keep bigint, closes boolean),
            unnest(packs_)
        ) WITH ORDINALITY AS w (run, stream, op, attempt, session, count, first, n, keep, closes, pack, nth)
        ORDER BY w.run, w.stream COLLATE "C", w.nth
    LOOP
        nth := write_.nth; detail := 0;
        IF (SELECT r.owner FROM "outlast".runs r WHERE r.id = write_.run) IS DISTINCT FROM session_ THEN
            code := 'owner';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF write_.session <> session_ OR EXISTS (SELECT 1 FROM "outlast".stream_writers w
            WHERE w.run = write_.run AND w.op = write_.op AND w.session = write_.session AND w.count > write_.count)
        THEN
            code := 'older';
            RETURN NEXT;
            CONTINUE;
        END IF;
        next_ := coalesce((SELECT w.next FROM "outlast".stream_writers w WHERE w.run = write_.run AND w.op = write_.op
            AND w.stream = write_.stream AND w.attempt = write_.attempt), 0);
        IF write_.first > next_ THEN
            code := 'missing'; detail := next_;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF NOT "outlast".open_stream_v3(write_.run, write_.stream, limits_[1]) THEN
            code := 'streams';
            RETURN NEXT;
            CONTINUE;
        END IF;
        PERFORM "outlast".restart_streams_v3(now_, write_.run, write_.op, write_.attempt, session_, write_.count);
        INSERT INTO "outlast".stream_writers (run, op, stream, attempt, session, count, first, next)
        SELECT write_.run, write_.op, write_.stream, write_.attempt, session_, write_.count, s.next, 0
        FROM "outlast".streams s WHERE s.run = write_.run AND s.name = write_.stream
        ON CONFLICT DO NOTHING;
        known_ := least(next_ - write_.first, write_.n);
        IF known_ > 0 THEN
            -- An earlier call has stored some of these chunks, and its answer was lost.
            write_.pack := (SELECT '[' || string_agg(e.value::text, ',' ORDER BY e.nth) || ']'
                FROM json_array_elements(write_.pack::json) WITH ORDINALITY AS e (value, nth) WHERE e.nth > known_);
        END IF;
        answer_ := "outlast".append_chunks_v3(now_, write_.run, write_.stream, write_.op, write_.attempt, write_.n - known_,
            write_.keep, CASE WHEN write_.closes THEN write_.op::text END, write_.pack, limits_[2]);
        UPDATE "outlast".stream_writers w SET next = w.next + write_.n - known_
        WHERE w.run = write_.run AND w.op = write_.op AND w.stream = write_.stream;
        code := CASE WHEN answer_.is_closed THEN 'closed' ELSE 'done' END;
        detail := answer_.dropped;
        RETURN NEXT;
    END LOOP;
    nth := 0; code := 'now'; detail := now_;
    RETURN NEXT;
END
$function$
