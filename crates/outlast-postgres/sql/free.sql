-- Releases a part of the runs of a session that has ended.
SELECT freed, has_more FROM {schema}.free{v}($1, $2, $3, $4::text::json)
