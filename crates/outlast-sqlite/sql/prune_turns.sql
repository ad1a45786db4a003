-- Forgets the histories of the runs of a list.
DELETE FROM turns WHERE run IN (SELECT value FROM json_each(?1))
