-- Runs that no session holds, by their deadline. A run that has ended has no deadline.
CREATE INDEX runs_overdue ON {schema}.runs (deadline, id) WHERE deadline IS NOT NULL AND owner IS NULL
