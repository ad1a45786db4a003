-- Lists and counts of runs with marks.
CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_marked ON {schema}.runs (id, marks) WHERE marks <> 0
