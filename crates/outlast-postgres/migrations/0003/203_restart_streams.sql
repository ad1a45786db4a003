-- Appends the entry `restarted` to each stream to which an older attempt of an operation has written.
CREATE FUNCTION {schema}.restart_streams{v}(
    now_ bigint, run_ text, op_ bigint, attempt_ text, session_ text, count_ bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old_ record;
    next_ bigint;
BEGIN
    FOR old_ IN SELECT w.stream, w.first FROM {schema}.stream_writers w
        WHERE w.run = run_ AND w.op = op_ AND w.attempt <> attempt_ ORDER BY w.stream
    LOOP
        UPDATE {schema}.streams s SET next = s.next + 1, closed_by = nullif(s.closed_by, op_::text)
        WHERE s.run = run_ AND s.name = old_.stream RETURNING s.next INTO next_;
        INSERT INTO {schema}.chunks (run, stream, first, next, at, op, attempt, entries)
        VALUES (run_, old_.stream, next_ - 1, next_, now_, op_, attempt_, '[{"restarted":' || old_.first || '}]');
        UPDATE {schema}.stream_writers w SET attempt = attempt_, session = session_, count = count_, first = next_, next = 0
        WHERE w.run = run_ AND w.op = op_ AND w.stream = old_.stream;
        PERFORM {schema}.trim_stream{v}(run_, old_.stream);
    END LOOP;
END
$$
