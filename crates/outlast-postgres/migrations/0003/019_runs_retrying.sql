-- Runs that wait for the next attempt of a step.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_retrying ON {schema}.runs (id) WHERE retrying
