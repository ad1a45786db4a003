-- Lists of descendants. Children of the root itself are in the index of children.
CREATE INDEX runs_by_root ON {schema}.runs (root, id) WHERE root <> parent
