-- The entries of streams of a deleted run, and their sizes.
SELECT rowid, octet_length(entries) FROM chunks WHERE run = ?1
