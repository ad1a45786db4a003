-- The heartbeat details of all attempts of a run.
SELECT op, attempt, codec, body FROM heartbeats WHERE run = ?1 ORDER BY op
