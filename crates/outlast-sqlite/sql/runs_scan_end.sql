-- The last run that one page looks at, if there are that many. What replaces the words in braces is that of
-- `runs_page.sql`, without what no index helps with.
SELECT {id} FROM {walk} WHERE {filters} ORDER BY {id} {order} LIMIT 1 OFFSET ?1
