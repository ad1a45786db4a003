-- Failures by fingerprint. Runs that do not fail are not in this index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_by_fingerprint ON {schema}.runs (fingerprint, ended_at, id)
WHERE fingerprint IS NOT NULL
