-- Runs that are overdue and that no session holds, the earliest deadline first. Their priority does not matter.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, 0, line,
    can_end, {columns}
FROM runs INDEXED BY runs_overdue
WHERE deadline <= ?1 AND owner IS NULL
ORDER BY deadline, id
