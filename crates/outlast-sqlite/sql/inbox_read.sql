-- The messages of a run behind a position that it has not consumed.
SELECT position, id, at, kind, name, op, outcome, codec, body, headers FROM inbox
WHERE run = ?1 AND position > ?2
ORDER BY position LIMIT ?3
