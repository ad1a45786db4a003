-- Deletes the heartbeat details of runs that have ended. This happens when a session ends: its worker may have ended
-- runs after its last beat.
DELETE FROM heartbeats WHERE EXISTS (SELECT 1 FROM runs WHERE id = heartbeats.run AND ended_at IS NOT NULL)
