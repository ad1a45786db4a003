-- Appends `new_` chunks to a stream that exists, as `StreamRow::append` of outlast-core does, and closes it if `closer_` is
-- given. `op_` and `attempt_` are null for those of a workflow. Returns whether the stream was closed before, and how
-- many chunks were too many.
CREATE FUNCTION {schema}.append_chunks{v}(
    now_ bigint, run_ text, stream_ text, op_ bigint, attempt_ text, new_ bigint, keep_ bigint, closer_ text, pack_ text,
    limit_ bigint, OUT is_closed boolean, OUT dropped bigint
) LANGUAGE plpgsql AS $$
DECLARE
    row_ record;
    kept_ bigint;
    stored_ bigint := new_;
BEGIN
    SELECT s.first, s.next, s.closed_by, s.keep_last INTO row_
    FROM {schema}.streams s WHERE s.run = run_ AND s.name = stream_ FOR UPDATE;
    is_closed := row_.closed_by IS NOT NULL;
    dropped := 0;
    IF is_closed THEN
        UPDATE {schema}.streams s SET late = s.late + new_ WHERE s.run = run_ AND s.name = stream_ AND new_ > 0;
        RETURN;
    END IF;
    kept_ := least(row_.next - row_.first + new_, coalesce(keep_, row_.keep_last));
    IF kept_ > limit_ THEN
        dropped := new_;
        stored_ := 0;
    END IF;
    IF stored_ > 0 THEN
        INSERT INTO {schema}.chunks (run, stream, first, next, at, op, attempt, entries)
        VALUES (run_, stream_, row_.next, row_.next + stored_, now_, op_, attempt_, pack_);
    END IF;
    UPDATE {schema}.streams s SET next = s.next + stored_, keep_last = coalesce(keep_, s.keep_last),
        dropped = s.dropped + append_chunks{v}.dropped, closed_by = closer_
    WHERE s.run = run_ AND s.name = stream_;
    IF coalesce(keep_, row_.keep_last) IS NOT NULL THEN
        PERFORM {schema}.trim_stream{v}(run_, stream_);
    END IF;
END
$$
