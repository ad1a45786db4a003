-- Deletes the replies of the runs in a JSON list.
DELETE FROM replies WHERE run IN (SELECT value FROM json_each(?1))
