-- The streams of a run, ordered by name, and whether the run has ended; one row without a name if it has none.
SELECT r.ended_at IS NOT NULL, s.name, s.first, s.next, s.closed_by IS NOT NULL, s.keep_last, s.dropped, s.late
FROM {schema}.runs r LEFT JOIN {schema}.streams s ON s.run = r.id WHERE r.id = $1 ORDER BY s.name
