-- Runs of one queue, workflow and line that are or will be ready, of the given priority and below: the highest priority
-- first, then the longest ready first.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, priority, line,
    can_end, {columns}
FROM runs INDEXED BY runs_ready
WHERE queue = ?1 AND workflow = ?2 AND version = ?3 AND line = ?4 AND priority <= ?5 AND ready_at IS NOT NULL
    AND NOT can_end
ORDER BY priority DESC, ready_at
