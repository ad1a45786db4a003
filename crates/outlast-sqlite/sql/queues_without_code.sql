-- The queues of ready runs that builds failed to continue and every worker may claim; a row for each, up to a limit.
SELECT queue, ready_at FROM runs
WHERE ready_at IS NOT NULL AND can_end AND ready_at <= ?1 AND failed_builds <> '' ORDER BY ready_at LIMIT ?2
