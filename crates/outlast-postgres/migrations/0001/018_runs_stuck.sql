-- Runs that a newly joined build may try again.
CREATE INDEX runs_stuck ON {schema}.runs (workflow, version) WHERE status = 'stuck'
