-- Runs of one workflow that are or will be ready, the longest ready first.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    barred_build, status, deadline
FROM runs INDEXED BY runs_ready
WHERE workflow = ?1 AND version = ?2 AND ready_at IS NOT NULL
ORDER BY ready_at
