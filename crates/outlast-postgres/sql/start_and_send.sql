-- Starts a run, or finds it by its key, and sends it a message.
SELECT nth, code, run, workflow, moment, number, status, kept, was_cancelled, holder_host, holder_pid
FROM {schema}.start_and_send{v}($1, $2::text::json, $3, $4, $5::text::json, $6, $7, $8)
