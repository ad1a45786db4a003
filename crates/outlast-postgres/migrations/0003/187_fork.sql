-- Starts a run with turns of another one before event `before_`, the messages in its inbox, and the row of `Fork::row` of
-- outlast-core. `row_` has the columns of the row, `ranges_` the turns that are copied as they are, by the numbers of their
-- first events, `turns_` and `events_` the others. Returns `forked`; `same` if the run exists, `none` if the other run does
-- not exist, and `changed` if it does not have `copied_` turns in the ranges: then nothing has changed.
CREATE FUNCTION {schema}.fork{v}(
    at_ bigint, row_ json, of_ text, before_ bigint, copied_ bigint, turns_ json, events_ text[], messages_ json,
    bodies_ text[], raws_ bytea[], limits_ bigint[], ranges_ json, OUT code text, OUT moment bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    a record;
    format_ integer;
    found_ bigint;
    now_ bigint := coalesce(at_, {schema}.clock{v}());
BEGIN
    moment := now_;
    SELECT * INTO a FROM json_to_record(row_) AS a (run text, turn text, born bigint, workflow text, version bigint,
        format integer, queue text, priority smallint, tags json, turn_at bigint, replay_from bigint, continued bigint);
    IF EXISTS (SELECT FROM {schema}.runs r WHERE r.id = a.run) THEN
        code := 'same';
        RETURN;
    END IF;
    SELECT r.format INTO format_ FROM {schema}.runs r WHERE r.id = of_;
    IF format_ IS NULL THEN
        code := 'none';
        RETURN;
    END IF;
    SELECT count(*) INTO found_ FROM json_to_recordset(ranges_) AS n (first bigint, last bigint)
    JOIN {schema}.turns t ON t.run = of_ AND t.seq BETWEEN n.first AND n.last;
    IF found_ <> copied_ THEN
        code := 'changed';
        RETURN;
    END IF;
    INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, ready_at, replay_from, continued)
    VALUES (a.run, a.workflow, a.version, greatest(a.format, format_), a.queue, a.priority, 'pending', a.turn, before_,
        a.turn_at, now_, now_, now_, a.replay_from, a.continued)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        code := 'same';
        RETURN;
    END IF;
    PERFORM {schema}.forget{v}(ARRAY[a.run]);
    INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
    SELECT a.run, t.seq, t.next_seq, t.id, t.at, t.build, t.events
    FROM json_to_recordset(ranges_) AS n (first bigint, last bigint)
    JOIN {schema}.turns t ON t.run = of_ AND t.seq BETWEEN n.first AND n.last;
    GET DIAGNOSTICS found_ = ROW_COUNT;
    IF found_ <> copied_ THEN
        RAISE EXCEPTION 'turns of the forked run were deleted meanwhile' USING ERRCODE = '40001';
    END IF;
    INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
    SELECT a.run, n.seq, n.next_seq, n.id, n.at, n.build, n.events
    FROM ROWS FROM (
        json_to_recordset(turns_) AS (seq bigint, next_seq bigint, id text, at bigint, build text), unnest(events_)
    ) AS n (seq, next_seq, id, at, build, events);
    INSERT INTO {schema}.tags (run, name, value)
    SELECT a.run, t.key, t.value FROM json_each_text(a.tags) AS t (key, value) WHERE a.tags IS NOT NULL;
    PERFORM 1 FROM {schema}.put_messages{v}(now_, messages_, bodies_, raws_, limits_, '{}');
    PERFORM {schema}.widen{v}(a.born - now_ / 1000, a.born - now_ / 1000);
    PERFORM {schema}.count_move{v}(NULL, 'pending');
    code := 'forked';
END
$$
