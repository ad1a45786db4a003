-- The number of streams of a run.
SELECT count(*) FROM streams WHERE run = ?1
