-- Deletes the tags of the runs in a JSON list.
DELETE FROM tags WHERE run IN (SELECT value FROM json_each(?1))
