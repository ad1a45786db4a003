-- Deletes a record.
DELETE FROM records WHERE space = ?1 AND id = ?2
