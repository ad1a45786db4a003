-- Runs that were asked to stop and have not ended.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_cancelling ON {schema}.runs (id) WHERE cancel_requested AND ended_at IS NULL
