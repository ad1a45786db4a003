-- The worker that holds a run.
SELECT host, pid, format FROM sessions WHERE id = (SELECT owner FROM runs WHERE id = ?1)
