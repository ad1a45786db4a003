-- Deletes the row of a session that has ended.
SELECT {schema}.remove_session{v}($1)
