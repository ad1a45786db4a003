-- The number of runs in each status, including changes that are not merged yet.
SELECT c.status, sum(c.n)::bigint
FROM (SELECT status, n FROM {schema}.counts UNION ALL SELECT status, n FROM {schema}.unmerged) c GROUP BY c.status
