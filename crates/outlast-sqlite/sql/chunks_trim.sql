-- Deletes the rows of a stream whose entries are all before an index.
DELETE FROM chunks WHERE run = ?1 AND stream = ?2 AND first < ?3 AND next <= ?3
