-- Renews a session, and answers how many runs it holds. No row means that it is gone.
UPDATE sessions SET expires_at = ?2 + time WHERE id = ?1
RETURNING (SELECT count(*) FROM runs WHERE owner = ?1)
