-- The unread messages of the runs that a session holds. Of the runs $3, only those after the positions $4.
SELECT i.position, i.id, i.at, i.kind, i.name, i.op, i.outcome, i.codec, i.body, i.raw, i.headers, i.run
FROM {schema}.runs r
CROSS JOIN LATERAL (SELECT greatest(r.consumed, ($4::bigint[])[array_position($3::text[], r.id)]) AS position) after
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.inbox i WHERE i.run = r.id AND i.position > after.position ORDER BY i.position LIMIT $2
) i
WHERE r.owner = $1 AND r.sent > r.consumed
ORDER BY i.run, i.position
