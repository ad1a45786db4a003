-- The tokens of a run, for its deletion.
CREATE INDEX tokens_by_run ON {schema}.tokens (run)
