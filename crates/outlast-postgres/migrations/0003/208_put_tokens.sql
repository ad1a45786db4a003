-- Frees and takes the tokens of committed turns. `refused_` has the numbers of turns that were not committed.
--
-- The rows are locked in the order of their hashes, and tokens are freed before others are taken. A token is taken from a
-- run that has ended, unless it is kept. If another run holds it, the run that wants it gets the message `refused`, with
-- the failure that the turn contains; in its text a placeholder stands for that other run. A turn that is repeated has
-- its answer already, and changes nothing.
CREATE FUNCTION {schema}.put_tokens{v}(
    now_ bigint, refused_ integer[], freed_ json, taken_ json, bodies_ text[], raws_ bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    new_ record;
    owner_ text;
    is_taken_ boolean;
    -- Messages of the engine are not limited.
    limits_ CONSTANT bigint[] := ARRAY[9223372036854775807, 9223372036854775807];
BEGIN
    PERFORM 1 FROM {schema}.tokens t WHERE t.hash IN (
        SELECT f.hash FROM json_to_recordset(freed_) AS f (hash text)
        UNION ALL SELECT n.hash FROM json_to_recordset(taken_) AS n (hash text))
    ORDER BY t.hash FOR UPDATE;
    UPDATE {schema}.tokens t SET kept_until = f.kept_until
    FROM json_to_recordset(freed_) AS f (turn_nth integer, hash text, run text, op bigint, kept_until bigint)
    WHERE f.turn_nth <> ALL (refused_) AND f.kept_until IS NOT NULL AND t.hash = f.hash AND t.run = f.run AND t.op = f.op
        AND t.kept_until IS NULL;
    DELETE FROM {schema}.tokens t
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
        CONTINUE WHEN EXISTS (SELECT 1 FROM {schema}.inbox i WHERE i.run = new_.run AND i.id = new_.answer);
        owner_ := NULL;
        LOOP
            INSERT INTO {schema}.tokens (hash, run, op, hook, opened_at, keep_for, webhook, codec, body, raw)
            VALUES (new_.hash, new_.run, new_.op, new_.hook, now_, new_.keep_for, new_.webhook, new_.codec, new_.body,
                new_.raw)
            ON CONFLICT (hash) DO NOTHING;
            is_taken_ := FOUND;
            EXIT WHEN is_taken_;
            -- A statement of its own: the insert may have waited for another transaction, which has also started its run.
            -- Only a new snapshot contains that run.
            UPDATE {schema}.tokens t SET run = new_.run, op = new_.op, hook = new_.hook, opened_at = now_,
                keep_for = new_.keep_for, kept_until = NULL, webhook = new_.webhook, codec = new_.codec, body = new_.body,
                raw = new_.raw
            WHERE t.hash = new_.hash AND (t.run = new_.run OR CASE WHEN t.kept_until IS NOT NULL THEN t.kept_until <= now_
                ELSE NOT EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = t.run
                    AND (r.ended_at IS NULL OR r.ended_at + t.keep_for > now_)) END);
            is_taken_ := FOUND;
            EXIT WHEN is_taken_;
            SELECT t.run INTO owner_ FROM {schema}.tokens t WHERE t.hash = new_.hash;
            -- Without an owner it was freed meanwhile.
            EXIT WHEN owner_ IS NOT NULL;
        END LOOP;
        CONTINUE WHEN new_.ends OR is_taken_ AND new_.notify IS NOT TRUE;
        PERFORM 1 FROM {schema}.put_messages{v}(now_, json_build_array(json_build_object('run', new_.run,
                'id', new_.answer, 'op', new_.op, 'turn_nth', new_.turn_nth, 'format', 3,
                'kind', CASE WHEN is_taken_ THEN 'token_taken' ELSE 'refused' END)),
            ARRAY[CASE WHEN NOT is_taken_ THEN replace(new_.failure, new_.mark_run, owner_) END], ARRAY[NULL::bytea],
            limits_, '{}');
    END LOOP;
END
$$
