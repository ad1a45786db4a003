-- Failed runs with one fingerprint, those that ended last first, between two pairs of time and id. Compare and sort by all
-- columns of the index, as row values, so that Postgres uses it.
SELECT runs.id, runs.workflow, runs.version, runs.key, runs.status, runs.owner, runs.created_at, runs.updated_at,
    runs.ended_at, runs.wake_at, runs.waits, runs.sent, runs.consumed, runs.parent, runs.parent_op,
    runs.parent_awaits, runs.root,
    ARRAY(SELECT t.name FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name),
    ARRAY(SELECT t.value FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name), runs.queue, runs.priority,
    runs.cancel_requested, runs.format, CASE WHEN runs.status = 'stuck' THEN runs.ready_at END, runs.marks, {runs.columns}
FROM {schema}.runs AS runs
WHERE runs.fingerprint IS NOT NULL AND (runs.fingerprint, runs.ended_at, runs.id) >= ($6, $1, $2)
    AND (runs.fingerprint, runs.ended_at, runs.id) < ($6, $3, $4)
ORDER BY runs.fingerprint DESC, runs.ended_at DESC, runs.id DESC LIMIT $5
