-- Commits turns that do something beyond their own runs, one by one in their order; see `commit_beyond`. What
-- belongs to each is a part of the columns: so many tags, children, tags of those, and messages. All rows that
-- change are locked first, in order of their ids, and then what has a key is made in order of the keys, as `start`
-- does, so that nobody waits in a circle: the starts and the children of turns that will not be refused.
CREATE FUNCTION {schema}.commit_each(
    session_ text, at_ bigint, exclusive_ boolean, run_ text[], id_ text[], from_ text[], seq_ bigint[],
    next_seq_ bigint[], turn_at_ bigint[], build_ text[], events_ text[], consumed_ bigint[],
    fired_until_ bigint[], then_ text[], clears_deadline_ boolean[], invalid_ boolean[], wake_at_ bigint[],
    waits_ text[], stuck_reason_ text[], stuck_message_ text[], stuck_build_ text[], format_ integer,
    born_ bigint[], workflow_ text[], version_ bigint[], queue_ text[], priority_ smallint[], key_ text[],
    digest_ text[], window_ bigint[], parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[],
    root_ text[], deadline_ bigint[], tag_name_ text[], tag_value_ text[], child_run_ text[],
    child_turn_ text[], child_born_ bigint[], child_workflow_ text[], child_version_ bigint[],
    child_queue_ text[], child_priority_ smallint[], child_key_ text[], child_digest_ text[],
    child_window_ bigint[], child_events_ text[], child_op_ bigint[], child_awaits_ boolean[],
    child_root_ text[], child_parent_ text[], child_not_before_ bigint[], child_deadline_ bigint[],
    child_tag_of_ integer[], child_tag_name_ text[], child_tag_value_ text[], child_answer_ text[],
    child_asks_ boolean[], told_refused_ text[], told_other_ text[], told_taken_ text[],
    told_foreign_ text[], mark_run_ text, mark_workflow_ text, message_run_ text[], message_id_ text[],
    message_kind_ text[], message_name_ text[], message_op_ bigint[], message_outcome_ text[],
    message_codec_ text[], message_body_ text[], message_raw_ bytea[], message_headers_ text[],
    message_limit_ bigint[], message_codeless_ text[], tags_ integer[], children_ integer[],
    child_tags_ integer[], messages_ integer[]
) RETURNS TABLE (nth integer, code text, detail text, moment bigint, rings boolean) LANGUAGE plpgsql AS $$
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
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (run_ || message_run_) ORDER BY r.id FOR NO KEY UPDATE;
    now_ := coalesce(at_, {schema}.clock());
    IF cardinality(array_remove(key_, NULL)) + cardinality(array_remove(child_key_, NULL)) > 0 THEN
        FOR keyed_ IN
            WITH fit AS (
                SELECT a.k, a.key FROM unnest(run_, id_, from_, seq_, consumed_, fired_until_, invalid_, key_) WITH ORDINALITY
                    AS a (run, id, "from", seq, consumed, fired_until, invalid, key, k)
                LEFT JOIN {schema}.runs r ON r.id = a.run
                LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = a.run
                    ORDER BY t.seq DESC LIMIT 1) last ON true
                WHERE NOT a.invalid AND CASE WHEN a."from" IS NULL THEN
                    r.id IS NULL AND NOT EXISTS (SELECT 1 FROM {schema}.runs o WHERE o.key = a.key)
                    -- Nor has another of these turns the key.
                    AND (a.key IS NULL OR 1 = (SELECT count(*) FROM unnest(key_ || child_key_) AS o (key) WHERE o.key = a.key))
                ELSE r.owner = session_ AND greatest(last.next_seq, r.next_seq) = a.seq
                    AND CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END = a."from"
                    AND a.consumed BETWEEN r.consumed AND r.sent
                    AND (a.fired_until IS NULL OR a.run <> ALL (message_run_) AND NOT EXISTS (SELECT 1 FROM {schema}.inbox i
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
                put_ := {schema}.put_start(now_, format_, child_run_[child_from_], child_turn_[child_from_],
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
                put_ := {schema}.put_held(session_, now_, format_, run_[keyed_.turn], turn_at_[keyed_.turn],
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
        FOR answer_ IN SELECT * FROM {schema}.commit_beyond(
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
        PERFORM {schema}.widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(new_born_) AS b (born);
    END IF;
    IF cardinality(statuses_) > 0 THEN
        PERFORM {schema}.count(statuses_, changes_);
    END IF;
END
$$
