-- Starts one run without a key or tags that nobody holds. Answers the time, and null when it was there already: then
-- `start` says so. It is refused (23505) when something is left of a run that was forgotten: that, too, is for
-- `start`. As with `commit_one`, one alone is quicker without what `start` does for many.
CREATE FUNCTION {schema}.start_one(
    at_ bigint, format_ integer, run_ text, turn_ text, born_ bigint, workflow_ text, version_ bigint, queue_ text,
    priority_ smallint, events_ text, parent_ text, parent_op_ bigint, parent_awaits_ boolean, root_ text,
    not_before_ bigint, deadline_ bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_ bigint := coalesce(at_, {schema}.clock());
    wake_at_ bigint := CASE WHEN not_before_ > now_ THEN not_before_ END;
BEGIN
    INSERT INTO {schema}.runs (id, workflow, version, format, queue, priority, status, turn, next_seq, turn_at,
        created_at, updated_at, wake_at, ready_at, parent, parent_op, parent_awaits, root, deadline)
    VALUES (run_, workflow_, version_, format_, queue_, priority_, 'pending', turn_, 1, now_, now_, now_, wake_at_,
        coalesce(wake_at_, now_), parent_, parent_op_, parent_awaits_, root_, deadline_)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
    VALUES (run_, 0, 1, turn_, now_, '', events_);
    PERFORM {schema}.widen(born_ - now_ / 1000, born_ - now_ / 1000);
    PERFORM {schema}.count_move(NULL, 'pending');
    RETURN now_;
END
$$
