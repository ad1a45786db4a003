-- The smallest and the largest difference between the time in a run's id and the time of its start, in milliseconds.
-- There is no row if no run was ever started.
SELECT lowest, highest FROM skew
