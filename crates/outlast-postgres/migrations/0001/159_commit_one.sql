-- Commits one turn of the plainest kinds: a step forward of a run that is held on, or its end. Answers the time of
-- an end, 0 for a step, and null when there is anything to say against it, or it is not so plain: then nothing
-- was done, and `commit` says why or does it. It exists because `commit` is for many: for one alone, most of
-- its time goes into getting ready.
CREATE FUNCTION {schema}.commit_one(
    session_ text, at_ bigint, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint,
    build_ text, events_ text, consumed_ bigint, then_ text
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := 0;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF then_ <> 'hold' THEN
        PERFORM 1 FROM {schema}.runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    END IF;
    INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
    SELECT run_, seq_, next_seq_, id_, turn_at_, build_, events_
    FROM {schema}.runs r
    LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = r.id
        ORDER BY t.seq DESC LIMIT 1) last ON true
    WHERE r.id = run_ AND r.owner = session_ AND r.consumed = consumed_
        AND CASE WHEN last.next_seq > r.next_seq THEN last.id = from_ AND last.next_seq = seq_
            ELSE r.turn = from_ AND r.next_seq = seq_ END
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF then_ <> 'hold' THEN
        now_ := coalesce(at_, {schema}.clock());
        UPDATE {schema}.runs r SET status = then_, owner = NULL, preferred = NULL, turn = id_, next_seq = next_seq_,
            turn_at = turn_at_, updated_at = now_, ended_at = now_, wake_at = NULL, waits = '[]', ready_at = NULL,
            crashes = 0, deadline = NULL, codeless = 0, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
        WHERE r.id = run_;
        PERFORM {schema}.count_move('running', then_);
    END IF;
    RETURN now_;
END
$$
