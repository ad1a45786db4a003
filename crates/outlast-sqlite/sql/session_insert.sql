-- Inserts a session. Repeating it has no effect.
INSERT INTO sessions (id, host, pid, build, code, time, joined_at, beat_at, expires_at, queues, rules, format, schema, version)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
ON CONFLICT DO NOTHING
