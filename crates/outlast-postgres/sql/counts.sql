-- How many runs are in each status, with what is still to be merged.
SELECT c.status, sum(c.n)::bigint
FROM (SELECT status, n FROM {schema}.counts UNION ALL SELECT status, n FROM {schema}.unmerged) c GROUP BY c.status
