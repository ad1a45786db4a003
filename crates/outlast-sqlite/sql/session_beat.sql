-- Renews a session, and stores the report of its worker. Returns the number of runs that it holds, and the rules that
-- new runs get. If no row is returned, the session has ended.
UPDATE sessions SET expires_at = ?2 + time, beat_at = ?2, report = ?3 WHERE id = ?1
RETURNING (SELECT count(*) FROM runs WHERE owner = ?1), (SELECT min(rules) FROM sessions)
