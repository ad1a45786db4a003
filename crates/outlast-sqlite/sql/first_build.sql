-- The build of the turn that began a run: empty when no worker saw the start.
SELECT build FROM turns WHERE run = ?1 AND seq = 0
