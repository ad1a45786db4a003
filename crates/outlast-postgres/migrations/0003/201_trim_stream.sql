-- Deletes the entries that a stream does not keep.
CREATE FUNCTION {schema}.trim_stream{v}(run_ text, stream_ text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first_ bigint;
BEGIN
    UPDATE {schema}.streams s SET first = s.next - s.keep_last
    WHERE s.run = run_ AND s.name = stream_ AND s.next - s.keep_last > s.first
    RETURNING s.first INTO first_;
    IF FOUND THEN
        DELETE FROM {schema}.chunks c WHERE c.run = run_ AND c.stream = stream_ AND c.first < first_ AND c.next <= first_;
    END IF;
END
$$
