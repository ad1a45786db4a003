-- The messages of several runs, each after a position.
SELECT i.position, i.id, i.at, i.kind, i.name, i.op, i.outcome, i.codec, i.body, i.raw, i.headers, i.run
FROM unnest($1::text[], $2::bigint[]) AS asked (run, after)
CROSS JOIN LATERAL (SELECT * FROM {schema}.inbox i WHERE i.run = asked.run AND i.position > asked.after
    ORDER BY i.position LIMIT $3) i
ORDER BY i.run, i.position
