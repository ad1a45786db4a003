-- Runs that nobody holds, by when they should have ended. A run that has ended has no deadline.
CREATE INDEX runs_overdue ON {schema}.runs (deadline, id) WHERE deadline IS NOT NULL AND owner IS NULL
