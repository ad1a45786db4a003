-- Runs that nobody holds and that are overdue, the longest first; their priority does not count.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, 0, line,
    {columns}
FROM runs INDEXED BY runs_overdue
WHERE deadline <= ?1 AND owner IS NULL
ORDER BY deadline, id
