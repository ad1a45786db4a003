-- Reopens a run that has failed or was cancelled, if its history has `events_` events and it was not compensated (bit 4 of
-- its marks): the row is that of `reopened` of outlast-core, and the message of the retry is in its inbox. Returns the
-- status, the marks and the number of events that it had (no status if it does not exist), the time, and the position of
-- the message: also if the message was sent before, and none if the run was not reopened.
CREATE FUNCTION {schema}.reopen{v}(
    at_ bigint, id_ text, message_ text, events_ bigint, replay_from_ bigint, deadline_ bigint, messages_ json,
    bodies_ text[], raws_ bytea[], limits_ bigint[],
    OUT status text, OUT marks integer, OUT events bigint, OUT moment bigint, OUT place bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    status_ text; marks_ integer; next_ bigint; now_ bigint; position_ bigint;
BEGIN
    SELECT r.status, r.marks, r.next_seq INTO status_, marks_, next_
    FROM {schema}.runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    now_ := coalesce(at_, {schema}.clock{v}());
    SELECT i.position INTO position_ FROM {schema}.inbox i WHERE i.run = id_ AND i.id = message_;
    IF position_ IS NULL AND status_ IN ('failed', 'cancelled') AND marks_ & 4 = 0 AND next_ = events_
        AND (deadline_ IS NULL OR deadline_ > now_) THEN
        UPDATE {schema}.runs r SET status = 'pending', owner = NULL, preferred = NULL, ended_at = NULL, wake_at = NULL,
            waits = '[]', last_terminate = 0, last_cancel = 0, cancel_requested = false, ready_at = now_, {ended_columns}
        WHERE r.id = id_;
        UPDATE {schema}.runs r SET replay_from = replay_from_, deadline = deadline_ WHERE r.id = id_;
        SELECT p.number INTO position_
        FROM {schema}.put_messages{v}(now_, messages_, bodies_, raws_, limits_, '{}') p;
        PERFORM {schema}.count_move{v}(status_, 'pending');
    END IF;
    status := status_; marks := marks_; events := next_; moment := now_; place := position_;
END
$$
