-- Deletes a part of the leftovers of deleted runs. Returns whether there are more.
SELECT {schema}.sweep_leftovers{v}($1)
