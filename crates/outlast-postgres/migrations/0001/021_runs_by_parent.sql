-- Lists of children.
CREATE INDEX runs_by_parent ON {schema}.runs (parent, id) WHERE parent IS NOT NULL
