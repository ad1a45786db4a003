-- The same for suspects, which travel alone and would be hard to find among the others.
CREATE INDEX runs_suspects ON {schema}.runs
    (queue, workflow, version, format, (coalesce(barred_build, '')), priority, ready_at, id)
WHERE ready_at IS NOT NULL AND crashes >= 2 AND codeless = 0
