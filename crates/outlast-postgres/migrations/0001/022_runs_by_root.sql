-- Lists of descendants.
CREATE INDEX runs_by_root ON {schema}.runs (root, id) WHERE root IS NOT NULL
