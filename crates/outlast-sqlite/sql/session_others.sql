-- The sessions that a takeover looks at.
SELECT id, build, expires_at FROM sessions WHERE id <> ?1 ORDER BY id
