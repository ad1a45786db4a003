-- Starts one run without a key or tags. Returns NULL if it already exists.
SELECT {schema}.start_one{v}($1, $2::text::json, $3)
