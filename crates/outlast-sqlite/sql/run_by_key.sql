-- The run that was started with a key, and the columns that a repeated start must match.
SELECT id, workflow, key_digest, created_at, ended_at FROM runs WHERE key = ?1
