-- A page of runs. What it filters and how it is sorted replaces the words in braces, so that SQLite
-- sees them when it chooses an index.
SELECT id, workflow, version, key, status, owner, created_at, updated_at, ended_at, wake_at, waits, sent,
    consumed, crashes, stuck_reason, stuck_message, stuck_build
FROM runs WHERE {filters} ORDER BY id {order} LIMIT ?1
