-- Stores heartbeat details of attempts at steps of runs that a session holds, and deletes those of attempts that have
-- ended.
CREATE FUNCTION {schema}.put_details{v}(session_ text, details_ json, bodies_ text[], raws_ bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO {schema}.heartbeats AS kept (run, op, attempt, codec, body, raw)
    SELECT DISTINCT ON (a.run, a.op) a.run, a.op, a.attempt, a.codec, a.body, a.raw
    FROM ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint, codec text), unnest(bodies_), unnest(raws_))
        WITH ORDINALITY AS a (run, op, attempt, codec, body, raw, nth)
    JOIN {schema}.runs r ON r.id = a.run
    WHERE r.owner = session_ AND (a.body IS NOT NULL OR a.raw IS NOT NULL)
    ORDER BY a.run, a.op, a.attempt DESC, a.nth DESC
    ON CONFLICT (run, op) DO UPDATE SET attempt = excluded.attempt, codec = excluded.codec, body = excluded.body,
        raw = excluded.raw
    WHERE excluded.attempt >= kept.attempt;
    DELETE FROM {schema}.heartbeats h
    USING ROWS FROM (json_to_recordset(details_) AS (run text, op bigint, attempt bigint), unnest(bodies_), unnest(raws_))
        AS a (run, op, attempt, body, raw)
    WHERE a.body IS NULL AND a.raw IS NULL AND h.run = a.run AND h.op = a.op AND h.attempt <= a.attempt
        AND EXISTS (SELECT 1 FROM {schema}.runs r WHERE r.id = a.run AND (r.owner = session_ OR r.ended_at IS NOT NULL));
END
$$
