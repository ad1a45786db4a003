-- Inserts a run. If no row is inserted, a run with its id or key exists.
INSERT INTO runs (id, workflow, version, format, key, key_digest, status, owner, preferred, turn, next_seq,
    turn_at, created_at, updated_at, ended_at, wake_at, waits, ready_at, cancel_requested, parent, parent_op,
    parent_awaits, root, queue, priority, marks, {assigned})
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
    ?23, ?24, ?25, {values})
ON CONFLICT DO NOTHING
