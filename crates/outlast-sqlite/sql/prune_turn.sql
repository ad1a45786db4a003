-- Deletes a turn.
DELETE FROM turns WHERE rowid = ?1
