-- A line of `runs_ready`: runs that any worker either may claim or may not. `head` is when the first of them is ready.
-- Only these functions use it; no client does.
CREATE TYPE {schema}.line{v} AS (
    queue text, workflow text, version bigint, format integer, failed_builds text, crash_class smallint, priority smallint,
    head bigint
)
