-- A line of `runs_ready`, or of `runs_suspects`: runs that any worker either may claim or may not. `head` is when the
-- first of them is ready.
CREATE TYPE {schema}.line AS (
    queue text, workflow text, version bigint, format integer, barred text, priority smallint, is_suspect boolean,
    head bigint
)
