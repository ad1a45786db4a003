-- Forgets the runs of a list.
DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?1))
