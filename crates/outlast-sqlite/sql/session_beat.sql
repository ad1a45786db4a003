-- Renews a session. No change means that it is gone.
UPDATE sessions SET expires_at = ?2 + time WHERE id = ?1
