-- Runs that every worker can claim because they need no code, the longest ready first. Their priority does not matter.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, ready_at, status, 0, line,
    can_end, {columns}
FROM runs INDEXED BY runs_codeless
WHERE ready_at IS NOT NULL AND can_end
ORDER BY ready_at
