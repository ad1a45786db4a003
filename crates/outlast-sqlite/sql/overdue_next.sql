-- The next deadline of a run that no session holds.
SELECT deadline FROM runs INDEXED BY runs_overdue
WHERE deadline > ?1 AND owner IS NULL
ORDER BY deadline LIMIT 1
