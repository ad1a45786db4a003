-- Makes the row of a run that begins with a turn of the session that holds it, unless its id or key is taken; answers
-- what `put_run` does. The turn is still to come.
CREATE FUNCTION {schema}.put_held(
    session_ text, now_ bigint, format_ integer, run_ text, turn_at_ bigint, workflow_ text, version_ bigint,
    queue_ text, priority_ smallint, key_ text, digest_ text, window_ bigint, parent_ text, parent_op_ bigint,
    parent_awaits_ boolean, root_ text, deadline_ bigint, names_ text[], values_ text[],
    OUT code text, OUT run text, OUT workflow text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    row_ {schema}.runs;
    put_ record;
BEGIN
    row_.id := run_; row_.workflow := workflow_; row_.version := version_; row_.format := format_;
    row_.queue := queue_; row_.priority := priority_; row_.key := key_; row_.key_digest := digest_;
    row_.status := 'running'; row_.owner := session_; row_.turn := ''; row_.next_seq := 0;
    row_.turn_at := turn_at_; row_.created_at := now_; row_.updated_at := now_; row_.waits := '[]';
    row_.codeless := 0; row_.sent := 0; row_.consumed := 0; row_.crashes := 0; row_.parent := parent_;
    row_.parent_op := parent_op_; row_.parent_awaits := parent_awaits_; row_.root := root_;
    row_.deadline := deadline_;
    put_ := {schema}.put_run(row_, window_, names_, values_);
    code := put_.code; run := put_.run; workflow := put_.workflow;
END
$$
