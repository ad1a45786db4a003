-- Ends a session whose worker leaves. Its runs are released and its row is deleted afterwards.
CREATE FUNCTION {schema}.leave{v}(at_ bigint, id_ text, class_max_ integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT {schema}.end_session{v}(coalesce(at_, {schema}.clock{v}()), id_, false, NULL, class_max_) THEN
        RETURN false;
    END IF;
    PERFORM {schema}.refresh_rules{v}();
    RETURN true;
END
$$
