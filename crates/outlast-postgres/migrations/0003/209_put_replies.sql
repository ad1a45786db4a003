-- Stores the replies of committed turns. The first reply to a message counts. `refused_` has the numbers of turns that
-- were not committed.
CREATE FUNCTION {schema}.put_replies{v}(now_ bigint, refused_ integer[], replies_ json, bodies_ text[], raws_ bytea[])
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO {schema}.replies (run, message, at, outcome, codec, body, raw)
    SELECT n.run, n.message, now_, n.outcome, n.codec, n.body, n.raw
    FROM ROWS FROM (
        json_to_recordset(replies_) AS (turn_nth integer, run text, message text, outcome text, codec text),
        unnest(bodies_), unnest(raws_)
    ) WITH ORDINALITY AS n (turn_nth, run, message, outcome, codec, body, raw, nth)
    WHERE n.turn_nth <> ALL (refused_) ORDER BY n.nth
    ON CONFLICT DO NOTHING;
END
$$
