-- The runs that a session holds.
CREATE INDEX runs_held ON {schema}.runs (owner, id) WHERE owner IS NOT NULL
