-- Deletes the published states of the runs in a JSON list.
DELETE FROM states WHERE run IN (SELECT value FROM json_each(?1))
