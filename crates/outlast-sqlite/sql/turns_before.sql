-- The number of turns of a run before an event, except those in the list, which is a JSON array.
SELECT count(*) FROM turns WHERE run = ?1 AND seq < ?2 AND seq NOT IN (SELECT value FROM json_each(?3))
