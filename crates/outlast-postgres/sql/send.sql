-- Sends messages.
SELECT code, number, status, kept, was_cancelled, holder_host, holder_pid
FROM {schema}.send{v}($1, $2, $3::text::json, $4, $5, $6)
