-- What is kept of the attempts at the steps of a run.
SELECT op, attempt, codec, body FROM heartbeats WHERE run = ?1 ORDER BY op
