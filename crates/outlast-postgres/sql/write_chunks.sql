-- Writes chunks of steps.
SELECT nth, code, detail FROM {schema}.write_chunks{v}($1, $2, $3::text::json, $4, $5)
