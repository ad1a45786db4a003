-- Starts one run without a key or tags; null when it was there already.
SELECT {schema}.start_one{v}($1, $2::text::json, $3)
