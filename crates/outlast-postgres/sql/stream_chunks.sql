-- A part of a stream, with the row of the stream and whether its run has ended; one row without chunks if there are none.
-- The row that contains the first entry to read is found by the primary key, because rows follow each other without gaps.
SELECT r.ended_at IS NOT NULL, s.first, s.next, s.closed_by IS NOT NULL, c.first, c.at, c.op, c.attempt, c.entries,
    c.is_superseded
FROM {schema}.runs r
LEFT JOIN {schema}.streams s ON s.run = r.id AND s.name = $2
LEFT JOIN LATERAL (
    SELECT k.first, k.at, k.op, k.attempt, k.entries, w.attempt IS NOT NULL AND w.attempt <> k.attempt AS is_superseded
    FROM {schema}.chunks k
    LEFT JOIN {schema}.stream_writers w ON w.run = k.run AND w.op = k.op AND w.stream = k.stream
    WHERE k.run = s.run AND k.stream = s.name AND k.first >= coalesce((
        SELECT max(b.first) FROM {schema}.chunks b WHERE b.run = s.run AND b.stream = s.name
            AND b.first <= greatest(s.first, least(s.next, CASE WHEN $3::bigint < 0 THEN s.next + $3::bigint ELSE $3::bigint END))), 0)
    ORDER BY k.first LIMIT $4
) c ON true
WHERE r.id = $1 ORDER BY c.first
