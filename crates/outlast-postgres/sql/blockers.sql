-- Describes the processes that hold the lock for which a connection with a turn of run $1 waits. Connections of Outlast
-- in the chain of waiting connections are left out: they wait as well, or finish in a moment.
WITH RECURSIVE chain (pid, depth) AS (
    SELECT blocker.pid, 1
    FROM pg_stat_activity waiting
    CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocker (pid)
    WHERE waiting.application_name = 'outlast ' || $1 AND waiting.wait_event_type = 'Lock'
        AND position($q${schema}.$q$ IN waiting.query) > 0
    UNION
    SELECT blocker.pid, c.depth + 1
    FROM chain c
    CROSS JOIN LATERAL unnest(pg_blocking_pids(c.pid)) AS blocker (pid)
    WHERE c.depth < 4 AND c.pid <> 0
)
SELECT string_agg(CASE WHEN blocker.pid = 0 THEN 'a prepared transaction'
    ELSE format('process %s (%s, %s, in a transaction since %s)', other.pid,
        coalesce(nullif(other.application_name, ''), 'no application name'), coalesce(other.state, 'state unknown'),
        coalesce(to_char(other.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time')) END,
    ', ' ORDER BY blocker.pid)
FROM (SELECT DISTINCT c.pid FROM chain c) AS blocker
LEFT JOIN pg_stat_activity other ON other.pid = blocker.pid
WHERE blocker.pid = 0 OR other.pid IS NOT NULL AND NOT coalesce(other.state = 'active'
    AND position($q${schema}.$q$ IN other.query) > 0 AND position($q${v}($q$ IN other.query) > 0, false)
