-- Takes a session's lock, if nobody has it.
SELECT pg_try_advisory_lock({schema}.lock_key{v}($1))
