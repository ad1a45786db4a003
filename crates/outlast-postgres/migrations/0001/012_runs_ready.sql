-- The index for claims. It consists of groups of runs with the same queue, code, format, failed builds, crash class and
-- priority; a group contains its runs in the order in which they become ready. A worker may claim all runs of a group
-- or none, so a claim skips whole groups. `ready_at` is null while nobody may claim the run.
CREATE INDEX runs_ready ON {schema}.runs
    (queue, workflow, version, format, failed_builds, crash_class, priority, ready_at, id)
WHERE ready_at IS NOT NULL AND NOT ends_without_code
