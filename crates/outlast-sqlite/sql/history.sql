-- Turns of a history, in order.
SELECT id, seq, at, build, events FROM turns WHERE run = ?1 AND seq >= ?2 ORDER BY seq LIMIT ?3
