-- Runs of one queue and workflow that are or will be ready, of this priority and less: the more urgent
-- first, among equals the longest ready. Those that need no code are in a list of their own.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    barred_build, status, deadline, priority
FROM runs INDEXED BY runs_ready
WHERE queue = ?1 AND workflow = ?2 AND version = ?3 AND priority <= ?4 AND ready_at IS NOT NULL AND codeless = 0
ORDER BY priority DESC, ready_at
