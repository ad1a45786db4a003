-- Writes what the workflows of committed turns write to streams, and the states that they publish. `refused_` has the
-- numbers of turns that were not committed. A repeated turn changes nothing: it is the last one that wrote.
CREATE FUNCTION {schema}.put_workflow_writes{v}(
    now_ bigint, refused_ integer[], writes_ json, packs_ text[], states_ json, bodies_ text[], raws_ bytea[],
    limits_ bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    write_ record;
BEGIN
    PERFORM 1 FROM {schema}.streams s
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
        CONTINUE WHEN NOT {schema}.open_stream{v}(write_.run, write_.stream, limits_[1]);
        UPDATE {schema}.streams s SET turn = write_.turn, dropped = s.dropped + write_.dropped, late = s.late + write_.late
        WHERE s.run = write_.run AND s.name = write_.stream AND s.turn IS DISTINCT FROM write_.turn;
        CONTINUE WHEN NOT FOUND;
        PERFORM {schema}.append_chunks{v}(now_, write_.run, write_.stream, NULL, NULL, write_.n, write_.keep,
            CASE WHEN write_.closes THEN 'workflow' END, write_.pack, limits_[2]);
    END LOOP;
    INSERT INTO {schema}.states AS s (run, turn, at, version, dropped, codec, body, raw)
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
$$
