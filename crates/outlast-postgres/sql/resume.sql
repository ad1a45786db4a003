-- Makes a run that nobody holds ready for every build; answers the status that it had, or nothing.
SELECT status, is_resumed FROM {schema}.resume{v}($1, $2)
