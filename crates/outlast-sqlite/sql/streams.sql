-- The streams of a run, ordered by name.
SELECT name, first, next, closed_by, keep_last, dropped, late, turn FROM streams WHERE run = ?1 ORDER BY name
