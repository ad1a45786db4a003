-- Runs of one queue, workflow, line and priority that are not ready yet, the earliest first.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, priority, line,
    {columns}
FROM runs INDEXED BY runs_ready
WHERE queue = ?1 AND workflow = ?2 AND version = ?3 AND line = ?4 AND priority = ?5 AND ready_at > ?6
ORDER BY ready_at
