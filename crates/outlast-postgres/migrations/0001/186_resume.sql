-- Makes a stuck run ready for every build, the one that left it so included. Answers the status that it had.
CREATE FUNCTION {schema}.resume(at_ bigint, id_ text) RETURNS text LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    status_ text;
BEGIN
    SELECT r.status INTO status_ FROM {schema}.runs r WHERE r.id = id_ FOR NO KEY UPDATE;
    IF status_ = 'stuck' THEN
        UPDATE {schema}.runs r SET ready_at = coalesce(at_, {schema}.clock()), barred_build = NULL WHERE r.id = id_;
    END IF;
    RETURN status_;
END
$$
