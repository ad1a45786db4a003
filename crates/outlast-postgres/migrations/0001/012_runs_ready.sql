-- Claims seek here. One line per queue, code, format, list of failed builds, crash class and priority, in order of
-- readiness: runs that a worker may not have, and urgent ones that are not ready yet, are in lines of their own.
-- `ready_at` is null whenever nobody may claim the run.
CREATE INDEX runs_ready ON {schema}.runs
    (queue, workflow, version, format, failed_builds, crash_class, priority, ready_at, id)
WHERE ready_at IS NOT NULL AND NOT ends_without_code
