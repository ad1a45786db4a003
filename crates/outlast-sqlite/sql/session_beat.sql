-- Renews a session with what its worker says of itself, and answers how many runs it holds and which rules new
-- runs get. No row means that it is gone.
UPDATE sessions SET expires_at = ?2 + time, beat_at = ?2, report = ?3 WHERE id = ?1
RETURNING (SELECT count(*) FROM runs WHERE owner = ?1), (SELECT min(rules) FROM sessions)
