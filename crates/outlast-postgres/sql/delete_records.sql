-- Deletes records.
SELECT {schema}.delete_records{v}($1, $2)
