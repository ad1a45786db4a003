-- Runs that any worker may claim, because what they need takes no workflow code.
CREATE INDEX runs_codeless ON {schema}.runs ((ready_at - priority::bigint * 10000000), id)
WHERE ready_at IS NOT NULL AND codeless > 0
