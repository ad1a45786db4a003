-- A run as the outside sees it.
SELECT id, workflow, version, key, status, owner, created_at, updated_at, ended_at, wake_at, waits, sent,
    consumed, crashes, stuck_reason, stuck_message, stuck_build, parent, parent_op, parent_awaits, root, deadline,
    queue, priority, format, kept, cancel_requested, failed_builds, failed_at,
    (SELECT json_group_array(json_array(name, value)) FROM tags WHERE run = runs.id)
FROM runs WHERE id = ?1
