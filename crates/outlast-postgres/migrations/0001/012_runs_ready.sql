-- Claims seek here. One line per queue, code, format, barred build and priority, in order of readiness: what a
-- worker may not have, and what is urgent but not ready yet, is in lines of its own and in nobody's way. `ready_at` is
-- null whenever nobody may claim the run.
CREATE INDEX runs_ready ON {schema}.runs
    (queue, workflow, version, format, (coalesce(barred_build, '')), priority, ready_at, id)
WHERE ready_at IS NOT NULL AND crashes < 2 AND codeless = 0
