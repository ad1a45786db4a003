-- Whom the connection waits for that tries to write a turn of this run.
SELECT string_agg(format('process %s (%s, %s, in a transaction since %s)', other.pid,
    coalesce(nullif(other.application_name, ''), 'no application name'), coalesce(other.state, 'state unknown'),
    coalesce(to_char(other.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time')), ', '
    ORDER BY other.pid)
FROM pg_stat_activity waiting
CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocker (pid)
JOIN pg_stat_activity other ON other.pid = blocker.pid
WHERE waiting.application_name = 'outlast ' || $1 AND waiting.wait_event_type = 'Lock'
