-- The version of the library that a worker was built with; null when its program is older than this column.
ALTER TABLE {schema}.sessions ADD COLUMN version text
