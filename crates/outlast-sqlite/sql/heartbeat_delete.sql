-- Deletes the heartbeat details of an attempt that has ended, if the session holds its run or the run has ended.
DELETE FROM heartbeats
WHERE run = ?1 AND op = ?2 AND attempt <= ?3 AND EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND (owner = ?4 OR ended_at IS NOT NULL))
