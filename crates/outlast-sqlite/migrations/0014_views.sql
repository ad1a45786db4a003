-- What lists show of runs.

-- Whether the run waits for the next attempt of a step. The holder writes it when it lets go of the run.
ALTER TABLE runs ADD COLUMN retrying INTEGER NOT NULL DEFAULT 0;
-- Why the run failed, as JSON, and the fingerprint of that failure. Null unless it failed.
ALTER TABLE runs ADD COLUMN failure TEXT;
ALTER TABLE runs ADD COLUMN fingerprint INTEGER;
-- Failures by fingerprint and by time. Runs that do not fail are not in these indexes.
CREATE INDEX runs_by_fingerprint ON runs (fingerprint, ended_at, id) WHERE fingerprint IS NOT NULL;
CREATE INDEX runs_failed ON runs (ended_at, id) WHERE fingerprint IS NOT NULL;
-- Runs that wait for the next attempt of a step, and runs that were asked to stop and have not ended.
CREATE INDEX runs_retrying ON runs (id) WHERE retrying;
CREATE INDEX runs_cancelling ON runs (id) WHERE cancel_requested AND ended_at IS NULL;
