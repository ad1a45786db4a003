-- The run that a key names, and what a start with it must agree with.
SELECT id, workflow, key_digest, created_at FROM runs WHERE key = ?1
