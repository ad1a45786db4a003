-- Starts a run that nobody holds, unless its id or key is taken; answers what `put_run` does.
CREATE FUNCTION {schema}.put_start(
    now_ bigint, format_ integer, run_ text, turn_ text, workflow_ text, version_ bigint, queue_ text,
    priority_ smallint, key_ text, digest_ text, window_ bigint, events_ text, parent_ text, parent_op_ bigint,
    parent_awaits_ boolean, root_ text, not_before_ bigint, deadline_ bigint, names_ text[], values_ text[],
    OUT code text, OUT run text, OUT workflow text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    row_ {schema}.runs;
    put_ record;
BEGIN
    row_.id := run_; row_.workflow := workflow_; row_.version := version_; row_.format := format_;
    row_.queue := queue_; row_.priority := priority_; row_.key := key_; row_.key_digest := digest_;
    row_.status := 'pending'; row_.turn := turn_; row_.next_seq := 1; row_.turn_at := now_;
    row_.created_at := now_; row_.updated_at := now_;
    row_.wake_at := CASE WHEN not_before_ > now_ THEN not_before_ END; row_.waits := '[]';
    row_.ready_at := coalesce(row_.wake_at, now_); row_.codeless := 0; row_.sent := 0; row_.consumed := 0;
    row_.crashes := 0; row_.parent := parent_; row_.parent_op := parent_op_; row_.parent_awaits := parent_awaits_;
    row_.root := root_; row_.deadline := deadline_;
    put_ := {schema}.put_run(row_, window_, names_, values_);
    code := put_.code; run := put_.run; workflow := put_.workflow;
    IF code = 'new' THEN
        INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
        VALUES (run_, 0, 1, turn_, now_, '', events_)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM {schema}.forget(ARRAY[run_]);
            INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
            VALUES (run_, 0, 1, turn_, now_, '', events_);
        END IF;
    END IF;
END
$$
