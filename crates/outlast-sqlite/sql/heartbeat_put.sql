-- Stores the heartbeat details of an attempt, if the session holds its run. Details of a later attempt are not
-- replaced.
INSERT INTO heartbeats (run, op, attempt, codec, body)
SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND owner = ?6)
ON CONFLICT (run, op) DO UPDATE SET attempt = excluded.attempt, codec = excluded.codec, body = excluded.body
WHERE excluded.attempt >= heartbeats.attempt
