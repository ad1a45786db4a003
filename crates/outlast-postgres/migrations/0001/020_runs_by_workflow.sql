-- Lists by workflow.
CREATE INDEX runs_by_workflow ON {schema}.runs (workflow, id)
