-- Commits one turn of the simplest kinds: a turn of a run that stays held and whose row does not change, or an end that
-- changes no more of the row than every end does. Returns the time of an end, 0 for other turns, and null if the turn
-- is not accepted: then nothing was changed, and the caller uses `commit` to find out why. It exists because it is
-- faster for one turn. As `commit`, it does not wait for a transaction that has locked a table.
CREATE FUNCTION {schema}.commit_one{v}(
    session_ text, at_ bigint, run_ text, id_ text, from_ text, seq_ bigint, next_seq_ bigint, turn_at_ bigint,
    build_ text, events_ text, consumed_ bigint, end_ text
) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = '50' AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := 0;
BEGIN
    PERFORM 1 FROM {schema}.sessions s WHERE s.id = session_ AND s.ended_at IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF end_ IS NOT NULL THEN
        PERFORM 1 FROM {schema}.runs r WHERE r.id = run_ FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            -- Another transaction has locked the row, or the run does not exist.
            RETURN NULL;
        END IF;
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
    IF end_ IS NOT NULL THEN
        now_ := coalesce(at_, {schema}.clock{v}());
        UPDATE {schema}.runs r SET status = end_, owner = NULL, preferred = NULL, turn = id_, next_seq = next_seq_,
            turn_at = turn_at_, updated_at = now_, ended_at = now_, wake_at = NULL, waits = '[]', ready_at = NULL,
            marks = r.marks & ~1,
            {ended_columns}
        WHERE r.id = run_;
        PERFORM {schema}.count_move{v}('running', end_);
    END IF;
    RETURN now_;
END
$$
