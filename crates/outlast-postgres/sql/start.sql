-- Starts runs.
SELECT nth, code, run, workflow, moment FROM {schema}.start{v}($1, $2::text::json, $3, $4)
