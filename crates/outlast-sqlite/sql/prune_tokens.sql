-- Deletes the tokens of the runs in a JSON list, except those that are kept.
DELETE FROM tokens WHERE run IN (SELECT value FROM json_each(?1)) AND kept_until IS NULL
