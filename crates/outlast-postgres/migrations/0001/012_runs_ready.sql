-- Claims seek here, in order of rank: `ready_at`, and ten seconds earlier for each level of priority, so
-- that waiting makes up for it. `ready_at` is null whenever nobody may claim the run.
CREATE INDEX runs_ready ON {schema}.runs (queue, workflow, version, (ready_at - priority::bigint * 10000000), id)
WHERE ready_at IS NOT NULL AND crashes < 2
