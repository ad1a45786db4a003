-- The streams to which an operation has written, and its newest attempt in each.
SELECT stream, attempt, first, next FROM stream_writers WHERE run = ?1 AND op = ?2 ORDER BY stream
