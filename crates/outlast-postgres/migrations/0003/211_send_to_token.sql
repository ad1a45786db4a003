-- Sends one message to a token: as `send`, if its run holds the token; otherwise the answer is `closed`. A message that
-- was sent before keeps its answer, and a run that has ended or does not exist is reported as such. While the row of the
-- run is locked, no commit of the run can free the token.
CREATE FUNCTION {schema}.send_to_token{v}(
    at_ bigint, hash_ text, run_ text, id_ text, messages_ json, bodies_ text[], raws_ bytea[], limits_ bigint[]
) RETURNS TABLE (
    code text, number bigint, status text, kept bigint, was_cancelled boolean, holder_host text, holder_pid bigint
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    is_open_ boolean;
BEGIN
    SELECT r.ended_at IS NULL INTO is_open_ FROM {schema}.runs r WHERE r.id = run_ FOR NO KEY UPDATE;
    IF is_open_ AND NOT EXISTS (SELECT 1 FROM {schema}.inbox i WHERE i.run = run_ AND i.id = id_)
        AND NOT EXISTS (SELECT 1 FROM {schema}.tokens t WHERE t.hash = hash_ AND t.run = run_ AND t.kept_until IS NULL)
    THEN
        code := 'closed';
        RETURN NEXT;
        RETURN;
    END IF;
    RETURN QUERY SELECT p.* FROM {schema}.put_messages{v}(
        coalesce(at_, {schema}.clock{v}()), messages_, bodies_, raws_, limits_, '{}') p;
END
$$
