-- The numbers of the turns that change these runs: turns of the runs themselves, and turns that send to them.
CREATE FUNCTION {schema}.turns_of{v}(runs_ text[], turns_ json, messages_ json) RETURNS integer[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT a.nth::integer FROM ROWS FROM (json_to_recordset(turns_) AS (run text)) WITH ORDINALITY AS a (run, nth)
        WHERE a.run = ANY (runs_)
        UNION
        SELECT m.turn_nth FROM json_to_recordset(messages_) AS m (run text, turn_nth integer) WHERE m.run = ANY (runs_));
END
$$
