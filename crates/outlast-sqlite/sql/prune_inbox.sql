-- Forgets the inboxes of the runs of a list.
DELETE FROM inbox WHERE run IN (SELECT value FROM json_each(?1))
