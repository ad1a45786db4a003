-- Ends a session.
SELECT {schema}.leave($1, $2)
