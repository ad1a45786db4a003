-- The first event of the turn that contains an event, or of the last turn.
SELECT max(seq) FROM turns WHERE run = ?1 AND seq <= ?2
