-- Appends messages to inboxes, in their order, except those of the turns in `refused_`, with one insert for all and one
-- update for each receiver. The caller has locked the rows of the receivers, so `now_` is later than every turn that
-- fired a timer.
--
-- A run that no session holds becomes ready, unless it is stuck or begins later and cannot be ended without code. The
-- answers are: `sent` with the position, `known` if the message was sent before; `none` if the run does not exist;
-- `ended`; `full` with the number of unread messages; and `unreadable` with the format that the worker that holds the
-- run can read, its host and its process. A message that a turn sends is accepted even if the holder of its receiver
-- cannot read it. `limits_` are the number of unread messages, and the number of unread and kept ones, at which an
-- inbox is full. A payload for a hook that the run waits for is accepted even if too many are kept, because the run may
-- need it to consume them. The messages contain none twice. `after_cancel` of a message is whether the run was asked to
-- stop before it arrived: a repetition is answered as the first time.
--
-- A pause sets bit 1 of the run's marks, and a resume or a cancel clears it. A run that was asked to stop, or that
-- compensates (bit 2), is not paused: the answer is `full`. A paused run that no session holds is ready at its deadline,
-- and when it can be ended without code.
CREATE FUNCTION {schema}.put_messages{v}(
    now_ bigint, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[], refused_ integer[]
) RETURNS TABLE (
    code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS (
        SELECT a.*, r.status, r.sent, r.consumed, r.kept, r.waits, r.cancel_requested, r.marks, known.position AS known,
            known.after_cancel AS known_after_cancel,
            holder.host AS holder_host, holder.pid AS holder_pid, holder.format AS holder_format,
            known.position IS NULL AND r.ended_at IS NULL AND r.id IS NOT NULL AND holder.pid IS NULL AS is_candidate
        FROM ROWS FROM (
            json_to_recordset(messages_) AS (run text, id text, kind text, name text, op bigint, outcome text, codec text,
                headers text, turn_nth integer, format integer),
            unnest(bodies_), unnest(raws_)
        ) WITH ORDINALITY AS a (run, id, kind, name, op, outcome, codec, headers, turn_nth, format, body, raw, nth)
        LEFT JOIN LATERAL (SELECT * FROM {schema}.runs r WHERE r.id = a.run) r ON true
        -- Sorted as the index `inbox_id`. With the other index, which Postgres may prefer without statistics, each message
        -- would read the whole inbox of its receiver.
        LEFT JOIN LATERAL (SELECT i.id, i.position, i.after_cancel FROM {schema}.inbox i WHERE i.run = a.run AND i.id >= a.id
            ORDER BY i.run, i.id LIMIT 1) known ON known.id = a.id
        LEFT JOIN LATERAL (SELECT s.host, s.pid, s.format FROM {schema}.sessions s WHERE a.format IS NOT NULL
            AND a.turn_nth IS NULL AND s.id = r.owner AND s.ended_at IS NULL AND s.format < a.format) holder ON true
        WHERE a.turn_nth IS NULL OR a.turn_nth <> ALL (refused_)
    ), ranked AS (
        SELECT a.*, a.sent - a.consumed + count(*) FILTER (WHERE a.is_candidate) OVER (PARTITION BY a.run ORDER BY a.nth) - 1
            AS unread,
            a.cancel_requested OR coalesce(bool_or(a.is_candidate AND a.kind = 'cancel')
                OVER (PARTITION BY a.run ORDER BY a.nth ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS was_cancelled
        FROM asked a
    ), judged AS (
        SELECT a.*, a.is_candidate AND CASE a.kind WHEN 'hook' THEN a.unread < limits_[1] AND CASE
                WHEN a.unread + a.kept < limits_[2] THEN true
                -- A name with NUL cannot be compared here; its hook counts as not open.
                WHEN strpos(a.waits, '\u0000') > 0 THEN false
                ELSE EXISTS (SELECT FROM json_array_elements(a.waits::json) w WHERE w->>'on' = 'hook' AND w->>'name' = a.name) END
            WHEN 'wake' THEN a.unread < limits_[1] WHEN 'pause' THEN a.unread < limits_[1] AND NOT a.was_cancelled
            ELSE true END AS is_accepted
        FROM ranked a
    ), placed AS (
        SELECT a.*, a.sent + count(*) FILTER (WHERE a.is_accepted) OVER w AS position
        FROM judged a WINDOW w AS (PARTITION BY a.run ORDER BY a.nth)
    ), added AS (
        INSERT INTO {schema}.inbox (run, position, id, at, kind, name, op, outcome, codec, body, raw, headers, after_cancel)
        SELECT p.run, p.position, p.id, now_, p.kind, p.name, p.op, p.outcome, p.codec, p.body, p.raw, p.headers,
            p.was_cancelled
        FROM placed p WHERE p.is_accepted
    ), received AS (
        SELECT p.run, max(p.position) AS sent, coalesce(max(p.position) FILTER (WHERE p.kind = 'terminate'), 0) AS last_terminate,
            coalesce(max(p.position) FILTER (WHERE p.kind = 'cancel'), 0) AS last_cancel,
            max(p.format) AS format,
            CASE WHEN bool_or(p.was_cancelled OR p.kind = 'cancel' OR p.marks & 2 <> 0) THEN min(p.marks) & ~1
                WHEN max(p.position) FILTER (WHERE p.kind = 'pause')
                    > coalesce(max(p.position) FILTER (WHERE p.kind = 'resume'), 0) THEN min(p.marks) | 1
                WHEN bool_or(p.kind = 'resume') THEN min(p.marks) & ~1
                ELSE min(p.marks) END AS marks
        FROM placed p WHERE p.is_accepted GROUP BY p.run
    ), woken AS (
        UPDATE {schema}.runs r SET sent = n.sent, updated_at = now_,
            last_terminate = greatest(r.last_terminate, n.last_terminate),
            last_cancel = greatest(r.last_cancel, n.last_cancel),
            cancel_requested = r.cancel_requested OR n.last_cancel > 0, format = greatest(r.format, n.format),
            marks = n.marks,
            ready_at = CASE WHEN r.owner IS NOT NULL THEN r.ready_at
                WHEN n.last_terminate > 0 OR r.next_seq <= 1 AND n.last_cancel > 0 OR r.ends_without_code
                    THEN least(r.ready_at, now_)
                WHEN n.marks & 1 <> 0 THEN r.deadline
                WHEN r.marks & 1 <> 0 THEN greatest(now_, CASE WHEN r.status = 'pending' THEN r.wake_at END)
                WHEN r.status = 'stuck' OR r.status = 'pending' AND r.wake_at IS NOT NULL THEN r.ready_at
                ELSE least(r.ready_at, now_) END
        FROM received n WHERE r.id = n.run
    )
    SELECT CASE WHEN p.known IS NOT NULL THEN 'known' WHEN p.is_accepted THEN 'sent' WHEN p.status IS NULL THEN 'none'
            WHEN p.holder_pid IS NOT NULL THEN 'unreadable' WHEN NOT p.is_candidate THEN 'ended' ELSE 'full' END,
        CASE WHEN p.known IS NOT NULL THEN p.known WHEN p.is_accepted THEN p.position
            WHEN p.holder_pid IS NOT NULL THEN p.holder_format ELSE p.unread END,
        p.status::text, p.kept,
        CASE WHEN p.known IS NOT NULL THEN coalesce(p.known_after_cancel, p.was_cancelled) ELSE p.was_cancelled END, p.holder_host, p.holder_pid
    FROM placed p ORDER BY p.nth;
END
$$
