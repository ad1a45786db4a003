-- Runs that a newly joined build may try again: those that other builds left stuck.
CREATE INDEX runs_stuck ON {schema}.runs (workflow, version, barred_build) WHERE status = 'stuck' AND ready_at IS NULL
