-- Runs of one queue, workflow and priority that are not ready yet, the first due first.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    barred_build, status, deadline, priority
FROM runs INDEXED BY runs_ready
WHERE queue = ?1 AND workflow = ?2 AND version = ?3 AND priority = ?4 AND ready_at > ?5
ORDER BY ready_at
