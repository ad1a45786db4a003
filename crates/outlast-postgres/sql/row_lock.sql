-- Whether a transaction may have locked the row of a run, the process that holds the lock, and whether that process
-- executes a statement of Outlast.
SELECT r.xmax::text <> '0',
    CASE WHEN held.pid IS NOT NULL THEN format('process %s (%s, %s, in a transaction since %s)', held.pid,
        coalesce(nullif(other.application_name, ''), 'no application name'), coalesce(other.state, 'state unknown'),
        coalesce(to_char(other.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time')) END,
    coalesce(other.state = 'active' AND position($q${schema}.$q$ IN other.query) > 0
        AND position($q${v}($q$ IN other.query) > 0, false)
FROM {schema}.runs r
LEFT JOIN pg_locks held ON held.locktype = 'transactionid' AND held.transactionid = r.xmax AND held.granted
    AND held.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity other ON other.pid = held.pid
WHERE r.id = $1
