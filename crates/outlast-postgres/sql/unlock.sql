-- Releases a session's advisory lock.
SELECT pg_advisory_unlock({schema}.lock_key{v}($1))
