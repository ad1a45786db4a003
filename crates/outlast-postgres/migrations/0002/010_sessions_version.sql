-- The version of the library of a worker; null if its program is older than this column.
ALTER TABLE {schema}.sessions ADD COLUMN version text
