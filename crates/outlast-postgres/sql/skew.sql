-- The smallest and the largest difference between the time in an id and the time of its start, in milliseconds. No row
-- if no run was ever started.
SELECT min(s.lowest), max(s.highest)
FROM (SELECT lowest, highest FROM {schema}.skew UNION ALL SELECT (lowest >> 10) << 10, highest | 1023 FROM {schema}.unmerged) s
HAVING count(*) > 0
