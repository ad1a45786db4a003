-- Deletes records of a space. Returns how many existed.
CREATE FUNCTION {schema}.delete_records{v}(space_ text, ids_ text[]) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    deleted_ bigint;
BEGIN
    PERFORM 1 FROM {schema}.record_counts c WHERE c.space = space_ FOR NO KEY UPDATE;
    DELETE FROM {schema}.records r WHERE r.space = space_ AND r.id = ANY (ids_);
    GET DIAGNOSTICS deleted_ = ROW_COUNT;
    UPDATE {schema}.record_counts c SET n = c.n - deleted_ WHERE c.space = space_;
    RETURN deleted_;
END
$$
