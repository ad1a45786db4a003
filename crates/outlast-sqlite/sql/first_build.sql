-- The build of the first turn of a run. It is empty if a client started the run.
SELECT build FROM turns WHERE run = ?1 AND seq = 0
