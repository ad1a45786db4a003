-- The last run that the scan of one page reads, if there are that many rows. The placeholders are those of
-- `runs_page.sql`, without the filters that no index supports.
SELECT {id} FROM {source} WHERE {filters} ORDER BY {id} {order} LIMIT 1 OFFSET ?1
