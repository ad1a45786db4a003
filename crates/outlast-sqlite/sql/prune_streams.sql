-- Deletes the streams of the runs in a JSON list.
DELETE FROM streams WHERE run IN (SELECT value FROM json_each(?1))
