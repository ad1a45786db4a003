-- How many runs are in each status.
SELECT status, n FROM counts WHERE n <> 0
