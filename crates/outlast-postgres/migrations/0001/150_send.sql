-- Sends messages, in their order. The rows of the receivers are locked first, in the order of their ids, to avoid
-- deadlocks.
CREATE FUNCTION {schema}.send{v}(at_ bigint, runs_ text[], messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
RETURNS TABLE (
    code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
    -- Read the clock after the rows are locked: it is later than every turn that has fired a timer.
    RETURN QUERY SELECT p.* FROM {schema}.put_messages{v}(
        coalesce(at_, {schema}.clock{v}()), messages_, bodies_, raws_, limits_, '{}') p;
END
$$
