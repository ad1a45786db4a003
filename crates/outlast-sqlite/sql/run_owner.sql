-- The session that holds a run.
SELECT owner FROM runs WHERE id = ?1
