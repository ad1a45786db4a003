-- The turns of a forgotten run, and how large they are.
SELECT rowid, octet_length(events) FROM turns WHERE run = ?1
