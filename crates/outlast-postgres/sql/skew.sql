-- How far ids and starts may lie apart, in milliseconds. Nothing when there never was a run.
SELECT min(s.lowest), max(s.highest)
FROM (SELECT lowest, highest FROM {schema}.skew UNION ALL SELECT (lowest >> 10) << 10, highest | 1023 FROM {schema}.unmerged) s
HAVING count(*) > 0
