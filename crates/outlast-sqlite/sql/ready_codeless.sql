-- Runs that every worker may claim, the longest ready first; their priority does not count.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    barred_build, status, deadline, 0
FROM runs INDEXED BY runs_codeless
WHERE ready_at IS NOT NULL AND codeless > 0
ORDER BY ready_at
