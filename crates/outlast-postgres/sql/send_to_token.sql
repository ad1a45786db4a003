-- Sends a message to a token.
SELECT code, number, status, kept, was_cancelled, holder_host, holder_pid
FROM {schema}.send_to_token{v}($1, $2, $3, $4, $5::text::json, $6, $7, $8)
