-- The number of runs with each combination of marks.
SELECT marks, count(*) FROM {schema}.runs WHERE marks <> 0 GROUP BY marks
