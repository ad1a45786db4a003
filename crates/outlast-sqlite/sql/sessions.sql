-- All joined sessions, to find those that have expired or whose process is dead, and to remove stale lock files.
SELECT id, build, expires_at, time FROM sessions ORDER BY id
