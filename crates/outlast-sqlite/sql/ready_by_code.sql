-- Runs of one queue and workflow that are or will be ready, in all lines after the given one: by line, then the highest
-- priority first, then the longest ready first. Runs that need no code are read by `ready_without_code.sql`.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, priority, line,
    can_end, {columns}
FROM runs INDEXED BY runs_ready
WHERE queue = ?1 AND workflow = ?2 AND version = ?3 AND line > ?4 AND ready_at IS NOT NULL AND NOT can_end
ORDER BY line, priority DESC, ready_at
