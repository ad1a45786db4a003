-- Starts a fork. Returns what became of it, and the time.
SELECT code, moment
FROM {schema}.fork{v}($1, $2::text::json, $3, $4, $5, $6::text::json, $7, $8::text::json, $9, $10, $11, $12::text::json)
