-- Failures by time.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_failed ON {schema}.runs (ended_at, id) WHERE fingerprint IS NOT NULL
