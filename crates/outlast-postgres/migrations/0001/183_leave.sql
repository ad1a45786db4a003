-- Ends a session; what it holds is ready for others. Deleting the row waits for the commits under way, and
-- refuses those that come later.
CREATE FUNCTION {schema}.leave(at_ bigint, id_ text) RETURNS bigint LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM {schema}.sessions s WHERE s.id = id_;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    RETURN {schema}.free(id_, coalesce(at_, {schema}.clock()), false, '', 0, '', '');
END
$$
