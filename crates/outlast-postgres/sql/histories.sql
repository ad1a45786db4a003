-- The complete histories of several runs.
SELECT t.id, t.seq, t.at, t.build, t.events, t.run FROM unnest($1::text[]) AS asked (run)
CROSS JOIN LATERAL (SELECT * FROM {schema}.turns t WHERE t.run = asked.run ORDER BY t.seq) t
ORDER BY t.run, t.seq
