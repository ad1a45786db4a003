-- Deletes turns of a run that no replay needs.
DELETE FROM turns WHERE run = ?1 AND seq >= ?2 AND seq < ?3
