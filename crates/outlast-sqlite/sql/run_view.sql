-- The view of a run.
SELECT id, workflow, version, key, status, owner, created_at, updated_at, ended_at, wake_at, waits, sent,
    consumed, parent, parent_op, parent_awaits, root, queue, priority, format, cancel_requested,
    (SELECT json_group_array(json_array(name, value)) FROM tags WHERE run = runs.id),
    CASE WHEN status = 'stuck' THEN ready_at END, marks, {columns}
FROM runs WHERE id = ?1
