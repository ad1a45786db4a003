-- The same for suspects, which travel alone and would be hard to find among the others.
CREATE INDEX runs_suspects ON {schema}.runs (queue, workflow, version, (ready_at - priority::bigint * 10000000), id)
WHERE ready_at IS NOT NULL AND crashes >= 2
