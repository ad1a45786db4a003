-- How many runs are in each status.
SELECT status, sum(n)::bigint FROM {schema}.counts GROUP BY status
