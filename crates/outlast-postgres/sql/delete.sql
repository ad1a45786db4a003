-- Deletes one run that has ended. Returns the status and marks that it had.
SELECT status, marks, is_deleted, has_leftovers FROM {schema}.delete{v}($1, $2)
