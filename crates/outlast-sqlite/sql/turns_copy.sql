-- Copies the turns of a run before an event to another run, except those in the list, which is a JSON array.
INSERT INTO turns (run, seq, id, at, build, events)
SELECT ?2, seq, id, at, build, events FROM turns
WHERE run = ?1 AND seq < ?3 AND seq NOT IN (SELECT value FROM json_each(?4))
