-- A page of runs. The index that it walks, what it filters and how it is sorted replace the words in braces,
-- so that SQLite sees them.
SELECT runs.id, workflow, version, key, status, owner, created_at, updated_at, ended_at, wake_at, waits, sent,
    consumed, crashes, stuck_reason, stuck_message, stuck_build, parent, parent_op, parent_awaits, root, deadline,
    queue, priority, format, kept, cancel_requested, failed_builds, failed_at,
    (SELECT json_group_array(json_array(name, value)) FROM tags WHERE run = runs.id)
FROM {walk}{join} WHERE {filters} ORDER BY {id} {order} LIMIT ?1
