-- Forgets a turn of a history.
DELETE FROM turns WHERE rowid = ?1
