-- Starts one run without a key or tags that no session holds. Returns the time; null if the run already exists: then
-- the caller uses `start`. It fails with 23505 if there are leftovers of a deleted run with the same id: for these,
-- too, the caller uses `start`. It exists because it is faster for one run.
CREATE FUNCTION {schema}.start_one{v}(at_ bigint, start_ json, events_ text) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock{v}());
    a record;
    wake_at_ bigint;
BEGIN
    SELECT * INTO a FROM json_to_record(start_) AS a (run text, turn text, born bigint, rules integer, workflow text,
        version bigint, format integer, queue text, priority smallint, parent text, parent_op bigint, awaits boolean,
        root text, not_before bigint, deadline bigint);
    wake_at_ := CASE WHEN a.not_before > now_ THEN a.not_before END;
    PERFORM {schema}.check_rules{v}(a.rules);
    INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
    VALUES (a.run, a.workflow, a.version, a.format, a.queue, a.priority, 'pending', a.turn, 1, now_, now_, now_, wake_at_,
        coalesce(wake_at_, now_), a.parent, a.parent_op, a.awaits, a.root, a.deadline)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
    VALUES (a.run, 0, 1, a.turn, now_, '', events_);
    PERFORM {schema}.widen{v}(a.born - now_ / 1000, a.born - now_ / 1000);
    PERFORM {schema}.count_move{v}(NULL, 'pending');
    RETURN now_;
END
$$
