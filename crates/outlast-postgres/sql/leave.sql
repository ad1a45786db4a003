-- Ends a session.
SELECT {schema}.leave{v}($1, $2, $3)
