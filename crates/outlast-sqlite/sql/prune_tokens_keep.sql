-- Keeps the tokens of runs in a JSON list, which are about to be deleted, for the time that they ask for.
UPDATE tokens SET kept_until = keep_for + (SELECT r.ended_at FROM runs r WHERE r.id = tokens.run)
WHERE run IN (SELECT value FROM json_each(?1)) AND keep_for IS NOT NULL AND kept_until IS NULL
