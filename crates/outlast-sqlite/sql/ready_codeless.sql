-- Runs that every worker may claim, the longest ready first; their priority does not count.
SELECT id, workflow, version, format, preferred, turn, next_seq, turn_at, sent, consumed, crashes, ready_at,
    failed_builds, failed_at, status, deadline, 0, kept, stuck_reason, stuck_message, stuck_build, line
FROM runs INDEXED BY runs_codeless
WHERE ready_at IS NOT NULL AND can_end
ORDER BY ready_at
