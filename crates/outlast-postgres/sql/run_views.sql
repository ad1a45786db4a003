-- Runs as the outside sees them.
SELECT runs.id, runs.workflow, runs.version, runs.key, runs.status, runs.owner, runs.created_at, runs.updated_at,
    runs.ended_at, runs.wake_at, runs.waits, runs.sent, runs.consumed, runs.crashes, runs.stuck_reason,
    runs.stuck_message, runs.stuck_build, runs.parent, runs.parent_op, runs.parent_awaits, runs.root, runs.deadline,
    ARRAY(SELECT t.name FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name),
    ARRAY(SELECT t.value FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name), runs.queue, runs.priority,
    runs.kept, runs.cancel_requested, runs.failed_builds, runs.failed_at, runs.format
FROM {schema}.runs WHERE id = ANY ($1)
