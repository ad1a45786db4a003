-- Whether a session is there, once no commit of it is under way.
SELECT 1 FROM {schema}.sessions WHERE id = $1 FOR UPDATE
