-- Whether a session that a run prefers still lives.
SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)
