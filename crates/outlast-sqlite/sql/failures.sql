-- Failed runs, those that ended last first, between two pairs of time and id.
SELECT id, workflow, version, key, status, owner, created_at, updated_at, ended_at, wake_at, waits, sent,
    consumed, parent, parent_op, parent_awaits, root, queue, priority, format, cancel_requested,
    (SELECT json_group_array(json_array(name, value)) FROM tags WHERE run = runs.id),
    CASE WHEN status = 'stuck' THEN ready_at END, marks, {columns}
FROM runs INDEXED BY runs_failed
WHERE fingerprint IS NOT NULL AND (ended_at, id) >= (?1, ?2) AND (ended_at, id) < (?3, ?4)
ORDER BY ended_at DESC, id DESC LIMIT ?5
