-- Queues, priorities, and what workers say of themselves.

ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default';
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

-- One line per queue, workflow and priority, in order of readiness. A claim walks each of them from its
-- front, so that the order among lines of different priorities is for the claim to say.
DROP INDEX runs_ready;
CREATE INDEX runs_ready ON runs (queue, workflow, version, priority DESC, ready_at) WHERE ready_at IS NOT NULL;

ALTER TABLE sessions ADD COLUMN queues TEXT NOT NULL DEFAULT '["default"]';
ALTER TABLE sessions ADD COLUMN beat_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN report TEXT NOT NULL DEFAULT '{}';
UPDATE sessions SET beat_at = joined_at;
