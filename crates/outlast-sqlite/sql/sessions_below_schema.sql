-- Who is joined by a program that does not know a schema: a migration to one that it cannot use waits for it.
SELECT id, host, pid, expires_at FROM sessions WHERE schema < ?1 ORDER BY id
