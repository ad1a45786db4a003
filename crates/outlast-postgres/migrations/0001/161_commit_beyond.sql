-- Commits one turn that does something beyond its own run, or starts it by a key: what it asks of others
-- first, while the run is still held, so that an answer is unread when it goes to wait.
--
-- A start with a key makes a row that the session holds and that has no turn yet; the turn then is the first
-- of a held run. For each child there is what its parent is told in each case: `told_new_`, `told_other_`,
-- `told_taken_` (of the same workflow), `told_foreign_` (of another); a refusal that is known beforehand is in
-- `told_refused_`. In these texts stand marks for what only the world knows. What is there already by a key
-- (`is_put_`, `put_code_`) was made by `commit_each`, which also counts what is answered here and notes its skew.
CREATE FUNCTION {schema}.commit_beyond(
    session_ text, at_ bigint, exclusive_ boolean, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint,
    turn_at_ bigint, build_ text, events_ text, consumed_ bigint, fired_until_ bigint, then_ text,
    clears_deadline_ boolean, invalid_ boolean, wake_at_ bigint, waits_ text, stuck_reason_ text,
    stuck_message_ text, stuck_build_ text, format_ integer,
    born_ bigint, workflow_ text, version_ bigint, queue_ text, priority_ smallint, key_ text, digest_ text,
    window_ bigint, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text, deadline_ bigint,
    tag_name_ text[], tag_value_ text[],
    child_run_ text[], child_turn_ text[], child_born_ bigint[], child_workflow_ text[], child_version_ bigint[],
    child_queue_ text[], child_priority_ smallint[], child_key_ text[], child_digest_ text[], child_window_ bigint[],
    child_events_ text[], child_op_ bigint[], child_awaits_ boolean[], child_root_ text[], child_parent_ text[],
    child_not_before_ bigint[], child_deadline_ bigint[], child_tag_of_ integer[], child_tag_name_ text[],
    child_tag_value_ text[], child_answer_ text[], child_asks_ boolean[], told_refused_ text[], told_other_ text[],
    told_taken_ text[], told_foreign_ text[], mark_run_ text, mark_workflow_ text,
    message_run_ text[], message_id_ text[], message_kind_ text[], message_name_ text[], message_op_ bigint[],
    message_outcome_ text[], message_codec_ text[], message_body_ text[], message_raw_ bytea[],
    message_headers_ text[], message_limit_ bigint[], message_codeless_ text[],
    is_put_ boolean, put_code_ text[], put_run_ text[], put_workflow_ text[]
) RETURNS TABLE (
    nth integer, code text, detail text, moment bigint, rings boolean, statuses text[], changes bigint[], births bigint[]
) LANGUAGE plpgsql AS $$
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
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR UPDATE;
    ELSE
        PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    END IF;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (array_append(message_run_, run_)) ORDER BY r.id FOR NO KEY UPDATE;
    now_ := coalesce(at_, {schema}.clock());
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
            put_ := {schema}.put_held(session_, now_, format_, run_, turn_at_, workflow_, version_, queue_, priority_, key_,
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
            FROM {schema}.runs r JOIN {schema}.turns first ON first.run = r.id AND first.seq = 0
            JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
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
        FROM {schema}.runs r
        LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last
        ON true WHERE r.id = run_;
        IF NOT FOUND OR judged_.turn = id_ OR judged_.owner IS DISTINCT FROM session_ OR judged_.turn <> from_
            OR judged_.seq <> seq_ OR invalid_ OR consumed_ < judged_.consumed OR consumed_ > judged_.sent
            OR fired_until_ IS NOT NULL AND EXISTS (SELECT 1 FROM {schema}.inbox i
                WHERE i.run = run_ AND i.position > consumed_ AND i.at <= fired_until_) THEN
            -- Refused, or done before: the commit below says which.
            reaches_ := false;
        ELSE
            PERFORM {schema}.put_tags(run_, tag_name_, tag_value_);
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
                put_ := {schema}.put_start(now_, format_, child_run_[i], child_turn_[i], child_workflow_[i],
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
                PERFORM {schema}.put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    told_refused_[i], NULL, NULL, 9223372036854775807, 'never');
            ELSIF put_.code = 'taken' THEN
                PERFORM {schema}.put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    replace(replace(CASE WHEN put_.workflow = child_workflow_[i] THEN told_taken_[i] ELSE told_foreign_[i] END,
                        mark_run_, put_.run), mark_workflow_, btrim(to_json(put_.workflow)::text, '"')),
                    NULL, NULL, 9223372036854775807, 'never');
            ELSIF child_asks_[i] THEN
                PERFORM {schema}.put_message(run_, child_answer_[i], now_, 'child_started', NULL, child_op_[i], NULL, NULL,
                    put_.run, NULL, NULL, 9223372036854775807, 'never');
            ELSIF put_.code = 'other' THEN
                PERFORM {schema}.put_message(run_, child_answer_[i], now_, 'refused', NULL, child_op_[i], NULL, NULL,
                    replace(told_other_[i], mark_run_, put_.run), NULL, NULL, 9223372036854775807, 'never');
            END IF;
        END LOOP;
        FOR i IN 1..cardinality(message_run_) LOOP
            PERFORM {schema}.put_message(message_run_[i], message_id_[i], now_, message_kind_[i], message_name_[i],
                message_op_[i], message_outcome_[i], message_codec_[i], message_body_[i], message_raw_[i],
                message_headers_[i], message_limit_[i], message_codeless_[i]);
        END LOOP;
    END IF;
    FOR answer_ IN SELECT * FROM {schema}.commit(session_, now_, exclusive_, ARRAY[run_], ARRAY[run_], ARRAY[id_],
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
$$
