-- Deletes a row of entries of a stream.
DELETE FROM chunks WHERE rowid = ?1
