-- The last run that one page of a list examines; no row if the list has fewer runs. The placeholders are those of
-- `runs_page.sql`, without the row filters.
SELECT {id_column} FROM {source} WHERE {filters} ORDER BY {sort} LIMIT 1 OFFSET $1
