-- A line: a group of runs in the index `runs_ready`, of which a worker may claim all or none. `head` is when the first
-- of them is ready. Only these functions use the type; no client does.
CREATE TYPE {schema}.line{v} AS (
    queue text, workflow text, version bigint, format integer, failed_builds text, crash_class smallint, priority smallint,
    head bigint
)
