-- Stores the newest attempt of an operation in a stream.
INSERT INTO stream_writers (run, op, stream, attempt, first, next) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (run, op, stream) DO UPDATE SET attempt = excluded.attempt, first = excluded.first, next = excluded.next
