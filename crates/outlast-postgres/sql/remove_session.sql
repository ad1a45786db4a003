-- Deletes a session that has ended.
SELECT {schema}.remove_session{v}($1)
