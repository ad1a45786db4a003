-- A key names one run, until a start with a window takes it over.
CREATE UNIQUE INDEX runs_key ON {schema}.runs (key) WHERE key IS NOT NULL
