-- A page of a list of runs. Placeholders: {source} is the tables, {filters} the conditions and {sort} the order. They
-- are part of the text, so that Postgres can plan with them.
SELECT runs.id, runs.workflow, runs.version, runs.key, runs.status, runs.owner, runs.created_at, runs.updated_at,
    runs.ended_at, runs.wake_at, runs.waits, runs.sent, runs.consumed, runs.parent, runs.parent_op,
    runs.parent_awaits, runs.root,
    ARRAY(SELECT t.name FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name),
    ARRAY(SELECT t.value FROM {schema}.tags t WHERE t.run = runs.id ORDER BY t.name), runs.queue, runs.priority,
    runs.cancel_requested, runs.format, CASE WHEN runs.status = 'stuck' THEN runs.ready_at END, runs.marks, {runs.columns}
FROM {source} WHERE {filters} ORDER BY {sort} LIMIT $1
