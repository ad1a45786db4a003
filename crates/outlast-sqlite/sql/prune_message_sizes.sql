-- The messages of a deleted run, and their sizes.
SELECT position, coalesce(octet_length(body), 0) FROM inbox WHERE run = ?1
