-- Opens a session. A repeated join changes nothing.
INSERT INTO sessions (id, host, pid, build, code, time, joined_at, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT DO NOTHING
