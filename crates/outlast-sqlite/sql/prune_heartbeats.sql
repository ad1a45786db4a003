-- Deletes the heartbeat details of the runs in a JSON list.
DELETE FROM heartbeats WHERE run IN (SELECT value FROM json_each(?1))
