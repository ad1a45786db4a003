-- Runs that any worker may claim, because what they need takes no workflow code. Their priority does not count.
CREATE INDEX runs_codeless ON {schema}.runs (ready_at, id)
WHERE ready_at IS NOT NULL AND codeless > 0
