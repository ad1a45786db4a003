-- Starts runs that nobody holds: first those without a key, all at once, then the others one by one. Answers
-- what is not simply new; `same` is a run that was there by its id. When another try of the same start was faster, all
-- of it is undone, to be looked at again.
CREATE FUNCTION {schema}.start(
    at_ bigint, format_ integer, run_ text[], turn_ text[], born_ bigint[], workflow_ text[], version_ bigint[],
    queue_ text[], priority_ smallint[], key_ text[], digest_ text[], window_ bigint[], events_ text[],
    parent_ text[], parent_op_ bigint[], parent_awaits_ boolean[], root_ text[], not_before_ bigint[],
    deadline_ bigint[], tag_of_ integer[], tag_name_ text[], tag_value_ text[]
) RETURNS TABLE (nth integer, code text, run text, workflow text, moment bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
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
        WHERE a.key IS NULL AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = a.run)
    ), added AS (
        INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
            created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
        SELECT a.run, a.workflow, a.version, format_, a.queue, a.priority, 'pending', a.turn, 1, now_,
            now_, now_, CASE WHEN a.not_before > now_ THEN a.not_before END,
            CASE WHEN a.not_before > now_ THEN a.not_before ELSE now_ END,
            a.parent, a.parent_op, a.parent_awaits, a.root, a.deadline
        FROM asked a ORDER BY a.nth
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), begun AS (
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT a.run, 0, 1, a.turn, now_, '', a.events FROM asked a
        ON CONFLICT DO NOTHING
        RETURNING 1
    ), tagged AS (
        INSERT INTO {schema}.tags (run, name, value)
        SELECT run_[t.of], t.name, t.value FROM unnest(tag_of_, tag_name_, tag_value_) AS t (of, name, value)
        WHERE key_[t.of] IS NULL AND NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = run_[t.of])
        ON CONFLICT DO NOTHING
    )
    SELECT (SELECT count(*) FROM added), (SELECT count(*) FROM begun), (SELECT array_agg(a.nth) FROM asked a)
    INTO added_, begun_, asked_;
    asked_ := coalesce(asked_, '{}');
    IF added_ <> cardinality(asked_) THEN
        RAISE EXCEPTION 'another try of a start was faster' USING ERRCODE = '40001';
    END IF;
    IF begun_ <> added_ THEN
        PERFORM {schema}.forget(ARRAY(SELECT run_[a.nth] FROM unnest(asked_) AS a (nth)));
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        SELECT run_[a.nth], 0, 1, turn_[a.nth], now_, '', events_[a.nth] FROM unnest(asked_) AS a (nth);
    END IF;
    -- In order of the keys, so that nobody waits in a circle.
    FOR i IN SELECT k.nth FROM unnest(key_) WITH ORDINALITY AS k (key, nth)
        WHERE k.key IS NOT NULL ORDER BY k.key COLLATE "C", k.nth
    LOOP
        put_ := {schema}.put_start(now_, format_, run_[i], turn_[i], workflow_[i], version_[i], queue_[i], priority_[i],
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
        PERFORM {schema}.widen(min(b.born) - now_ / 1000, max(b.born) - now_ / 1000) FROM unnest(born_) AS b (born);
        PERFORM {schema}.count(ARRAY['pending'], ARRAY[added_]);
    END IF;
    nth := 0; code := 'now'; run := NULL; workflow := NULL; moment := now_;
    RETURN NEXT;
END
$$
