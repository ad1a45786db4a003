-- One stream of a run.
SELECT name, first, next, closed_by, keep_last, dropped, late, turn FROM streams WHERE run = ?1 AND name = ?2
