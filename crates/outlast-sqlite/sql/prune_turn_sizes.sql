-- The turns of a deleted run, and their sizes.
SELECT rowid, octet_length(events) FROM turns WHERE run = ?1
