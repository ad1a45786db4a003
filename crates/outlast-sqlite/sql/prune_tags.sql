-- Forgets the tags of the runs of a list.
DELETE FROM tags WHERE run IN (SELECT value FROM json_each(?1))
