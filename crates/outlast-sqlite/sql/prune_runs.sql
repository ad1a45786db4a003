-- Deletes the runs in a JSON list.
DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?1))
