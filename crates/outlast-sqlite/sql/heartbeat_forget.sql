-- Forgets what is kept of an attempt that has ended, if the session holds its run.
DELETE FROM heartbeats
WHERE run = ?1 AND op = ?2 AND attempt <= ?3 AND EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND owner = ?4)
