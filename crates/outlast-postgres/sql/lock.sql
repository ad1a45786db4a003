-- Takes a session's advisory lock, unless another connection holds it.
SELECT pg_try_advisory_lock({schema}.lock_key{v}($1))
