-- Why the run failed, as JSON. Null unless it failed.
ALTER TABLE {schema}.runs ADD COLUMN failure text
