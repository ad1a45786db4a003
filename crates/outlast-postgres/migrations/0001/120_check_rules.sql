-- Refuses starts with rules that a joined session does not know. The caller lowers the rules and tries again; this
-- function cannot, since the rules are part of the first event.
CREATE FUNCTION {schema}.check_rules{v}(rules_ integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known_ integer := (SELECT s.rules FROM {schema}.settings s);
BEGIN
    IF known_ < rules_ THEN
        RAISE EXCEPTION 'a joined worker knows the rules up to % only', known_ USING ERRCODE = 'OL001', DETAIL = known_::text;
    END IF;
END
$$
