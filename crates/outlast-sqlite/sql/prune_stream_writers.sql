-- Deletes what is known about the writers of the streams of the runs in a JSON list.
DELETE FROM stream_writers WHERE run IN (SELECT value FROM json_each(?1))
