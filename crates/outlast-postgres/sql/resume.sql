-- Makes a stuck run ready for every build; answers the status that it had, or nothing.
SELECT {schema}.resume($1, $2)
