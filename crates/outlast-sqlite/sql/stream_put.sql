-- Stores the row of a stream.
INSERT INTO streams (run, name, first, next, closed_by, keep_last, dropped, late, turn)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (run, name) DO UPDATE SET first = excluded.first, next = excluded.next, closed_by = excluded.closed_by,
    keep_last = excluded.keep_last, dropped = excluded.dropped, late = excluded.late, turn = excluded.turn
