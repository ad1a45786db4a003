-- The messages of a forgotten run, and how large they are.
SELECT position, coalesce(octet_length(body), 0) FROM inbox WHERE run = ?1
