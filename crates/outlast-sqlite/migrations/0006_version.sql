-- The version of the library that a worker was built with; null if its program is older than this column.
ALTER TABLE sessions ADD COLUMN version TEXT;
