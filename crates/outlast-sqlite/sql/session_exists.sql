-- Whether a session exists.
SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)
