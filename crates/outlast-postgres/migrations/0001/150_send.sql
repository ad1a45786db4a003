-- Sends messages, in their order. The rows of the receivers are locked first, in order of their ids, so that
-- nobody waits in a circle.
CREATE FUNCTION {schema}.send(
    at_ bigint, run_ text[], id_ text[], kind_ text[], name_ text[], op_ bigint[], outcome_ text[],
    codec_ text[], body_ text[], raw_ bytea[], headers_ text[], limit_ bigint[], codeless_ text[]
) RETURNS TABLE (code text, number bigint, status text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM {schema}.runs r WHERE r.id = ANY (run_) ORDER BY r.id FOR NO KEY UPDATE;
    FOR i IN 1..coalesce(array_length(run_, 1), 0) LOOP
        RETURN QUERY SELECT p.* FROM {schema}.put_message(run_[i], id_[i], at_, kind_[i], name_[i], op_[i],
            outcome_[i], codec_[i], body_[i], raw_[i], headers_[i], limit_[i], codeless_[i]) AS p;
    END LOOP;
END
$$
