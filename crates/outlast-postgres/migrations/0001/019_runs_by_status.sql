-- Lists by status.
CREATE INDEX runs_by_status ON {schema}.runs (status, id)
