-- The processes that have locked a table of the schema as a whole, so that nobody can write to it.
SELECT string_agg(DISTINCT format('process %s (%s, %s, in a transaction since %s, last statement at %s), which has locked the table %s',
    other.pid, coalesce(nullif(other.application_name, ''), 'no application name'), coalesce(other.state, 'state unknown'),
    coalesce(to_char(other.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time'),
    coalesce(to_char(other.query_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time'),
    locked.relname), ', ')
FROM pg_locks held
JOIN pg_class locked ON locked.oid = held.relation
JOIN pg_stat_activity other ON other.pid = held.pid
WHERE held.locktype = 'relation' AND held.granted AND held.pid <> pg_backend_pid()
    AND held.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    AND held.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    AND locked.relkind = 'r' AND locked.relnamespace = $1::text::regnamespace
