-- Writes chunks of steps. Returns a row per write, or only a row `gone`, if the session has ended. A row number 0 has the
-- time.
--
-- The lock on the session excludes a takeover, as in a commit. The row of the run is only read: no commit waits for
-- chunks. The streams of all runs are locked first, in order; a commit whose workflow writes does the same.
CREATE FUNCTION {schema}.write_chunks{v}(session_ text, at_ bigint, writes_ json, packs_ text[], limits_ bigint[])
RETURNS TABLE (nth integer, code text, detail bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint;
    write_ record;
    next_ bigint;
    known_ bigint;
    answer_ record;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        nth := 0; code := 'gone';
        RETURN NEXT;
        RETURN;
    END IF;
    PERFORM 1 FROM {schema}.streams s
    WHERE s.run IN (SELECT w.run FROM json_to_recordset(writes_) AS w (run text)) ORDER BY s.run, s.name FOR UPDATE;
    now_ := coalesce(at_, {schema}.clock{v}());
    FOR write_ IN
        SELECT * FROM ROWS FROM (
            json_to_recordset(writes_) AS (run text, stream text, op bigint, attempt text, session text, count bigint,
                first bigint, n bigint, keep bigint, closes boolean),
            unnest(packs_)
        ) WITH ORDINALITY AS w (run, stream, op, attempt, session, count, first, n, keep, closes, pack, nth)
        ORDER BY w.run, w.stream COLLATE "C", w.nth
    LOOP
        nth := write_.nth; detail := 0;
        IF (SELECT r.owner FROM {schema}.runs r WHERE r.id = write_.run) IS DISTINCT FROM session_ THEN
            code := 'owner';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF write_.session <> session_ OR EXISTS (SELECT 1 FROM {schema}.stream_writers w
            WHERE w.run = write_.run AND w.op = write_.op AND w.session = write_.session AND w.count > write_.count)
        THEN
            code := 'older';
            RETURN NEXT;
            CONTINUE;
        END IF;
        next_ := coalesce((SELECT w.next FROM {schema}.stream_writers w WHERE w.run = write_.run AND w.op = write_.op
            AND w.stream = write_.stream AND w.attempt = write_.attempt), 0);
        IF write_.first > next_ THEN
            code := 'missing'; detail := next_;
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF NOT {schema}.open_stream{v}(write_.run, write_.stream, limits_[1]) THEN
            code := 'streams';
            RETURN NEXT;
            CONTINUE;
        END IF;
        PERFORM {schema}.restart_streams{v}(now_, write_.run, write_.op, write_.attempt, session_, write_.count);
        INSERT INTO {schema}.stream_writers (run, op, stream, attempt, session, count, first, next)
        SELECT write_.run, write_.op, write_.stream, write_.attempt, session_, write_.count, s.next, 0
        FROM {schema}.streams s WHERE s.run = write_.run AND s.name = write_.stream
        ON CONFLICT DO NOTHING;
        known_ := least(next_ - write_.first, write_.n);
        IF known_ > 0 THEN
            -- An earlier call has stored some of these chunks, and its answer was lost.
            write_.pack := (SELECT '[' || string_agg(e.value::text, ',' ORDER BY e.nth) || ']'
                FROM json_array_elements(write_.pack::json) WITH ORDINALITY AS e (value, nth) WHERE e.nth > known_);
        END IF;
        answer_ := {schema}.append_chunks{v}(now_, write_.run, write_.stream, write_.op, write_.attempt, write_.n - known_,
            write_.keep, CASE WHEN write_.closes THEN write_.op::text END, write_.pack, limits_[2]);
        UPDATE {schema}.stream_writers w SET next = w.next + write_.n - known_
        WHERE w.run = write_.run AND w.op = write_.op AND w.stream = write_.stream;
        code := CASE WHEN answer_.is_closed THEN 'closed' ELSE 'done' END;
        detail := answer_.dropped;
        RETURN NEXT;
    END LOOP;
    nth := 0; code := 'now'; detail := now_;
    RETURN NEXT;
END
$$
