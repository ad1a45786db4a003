-- Tokens that are kept after they were closed.
CREATE INDEX tokens_kept ON {schema}.tokens (kept_until) WHERE kept_until IS NOT NULL
