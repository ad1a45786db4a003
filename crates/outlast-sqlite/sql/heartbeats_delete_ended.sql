-- Forgets what is kept of attempts of runs that have ended, when a session ends: its worker may have ended a run and
-- not have said so with a beat.
DELETE FROM heartbeats WHERE EXISTS (SELECT 1 FROM runs WHERE id = heartbeats.run AND ended_at IS NOT NULL)
