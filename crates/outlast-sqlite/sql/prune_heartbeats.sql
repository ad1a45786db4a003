-- Forgets what is kept of the attempts of the runs of a list.
DELETE FROM heartbeats WHERE run IN (SELECT value FROM json_each(?1))
