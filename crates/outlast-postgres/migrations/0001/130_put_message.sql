-- Appends a message to a run's inbox, and wakes a run that nobody holds. One that is stuck or begins later
-- stays as it is, unless the message needs no code. The answer is `sent` with its position, also when it was
-- sent before, `none` when there is no such run, `ended` with the status, `full` with what is unread.
CREATE FUNCTION {schema}.put_message(
    run_ text, id_ text, at_ bigint, kind_ text, name_ text, op_ bigint, outcome_ text, codec_ text, body_ text,
    raw_ bytea, headers_ text, limit_ bigint, codeless_ text,
    OUT code text, OUT number bigint, OUT status text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    run record;
    now_ bigint;
    is_codeless_ boolean;
BEGIN
    SELECT r.status, r.sent, r.consumed, r.next_seq, r.owner INTO run
    FROM {schema}.runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        code := 'none';
        RETURN;
    END IF;
    -- Read under the lock: a turn that fired a timer before has its moment behind it.
    now_ := coalesce(at_, {schema}.clock());
    SELECT position INTO number FROM {schema}.inbox i WHERE i.run = run_ AND i.id = id_;
    IF FOUND THEN
        code := 'sent';
        RETURN;
    END IF;
    IF run.status IN ('completed', 'failed', 'cancelled') THEN
        code := 'ended'; status := run.status;
        RETURN;
    END IF;
    IF run.sent - run.consumed >= limit_ THEN
        code := 'full'; number := run.sent - run.consumed; status := run.status;
        RETURN;
    END IF;
    number := run.sent + 1;
    is_codeless_ := codeless_ = 'always' OR codeless_ = 'fresh' AND run.next_seq <= 1;
    INSERT INTO {schema}.inbox (run, position, id, at, kind, name, op, outcome, codec, body, raw, headers)
    VALUES (run_, number, id_, now_, kind_, name_, op_, outcome_, codec_, body_, raw_, headers_);
    UPDATE {schema}.runs r SET sent = number, updated_at = now_,
        ready_at = CASE WHEN r.owner IS NOT NULL THEN r.ready_at
            WHEN NOT is_codeless_ AND (r.status = 'stuck' OR r.status = 'pending' AND r.wake_at IS NOT NULL)
            THEN r.ready_at
            ELSE least(coalesce(r.ready_at, now_), now_) END,
        codeless = CASE WHEN is_codeless_ THEN number ELSE r.codeless END
    WHERE r.id = run_;
    code := 'sent';
END
$$
