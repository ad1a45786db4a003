-- Sends messages, in their order. The rows of the receivers are locked first, in order of their ids, so that
-- nobody waits in a circle.
CREATE FUNCTION {schema}.send{v}(at_ bigint, runs_ text[], messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[])
RETURNS TABLE (
    code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (runs_) ORDER BY r.id FOR NO KEY UPDATE;
    -- Read under the lock: a turn that fired a timer before has its moment behind it.
    RETURN QUERY SELECT p.* FROM {schema}.put_messages{v}(
        coalesce(at_, {schema}.clock{v}()), messages_, bodies_, raws_, limits_, '{}') p;
END
$$
