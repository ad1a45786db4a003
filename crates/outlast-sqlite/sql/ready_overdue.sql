-- Runs that nobody holds and that are overdue, the longest first; their priority does not count.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    failed_builds, failed_at, status, deadline, 0, kept, stuck_reason, stuck_message, stuck_build, line
FROM runs INDEXED BY runs_overdue
WHERE deadline <= ?1 AND owner IS NULL
ORDER BY deadline, id
