-- Stores entries of a stream.
INSERT INTO chunks (run, stream, first, next, at, op, attempt, entries) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
