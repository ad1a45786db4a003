-- The messages of a run after a position.
SELECT position, id, at, kind, name, op, outcome, codec, body, headers FROM inbox
WHERE run = ?1 AND position > ?2
ORDER BY position LIMIT ?3
