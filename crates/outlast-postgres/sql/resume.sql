-- Makes a run that no session holds ready for every build. Returns the status that it had; no status if it does not
-- exist.
SELECT status, is_resumed FROM {schema}.resume{v}($1, $2)
