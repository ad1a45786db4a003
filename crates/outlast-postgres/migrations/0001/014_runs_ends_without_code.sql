-- Runs that any worker may claim, because they can be ended without workflow code. Their priority is ignored.
CREATE INDEX runs_ends_without_code ON {schema}.runs (ready_at, id)
WHERE ready_at IS NOT NULL AND ends_without_code
