-- The number of runs in each status.
SELECT status, n FROM counts WHERE n <> 0
