-- Deletes a part of the chunks of deleted runs. Returns whether there are more.
SELECT {schema}.sweep_chunks{v}($1)
