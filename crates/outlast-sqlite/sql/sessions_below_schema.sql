-- The joined sessions whose programs do not know a schema. They prevent a migration to it.
SELECT id, host, pid, expires_at FROM sessions WHERE schema < ?1 ORDER BY id
