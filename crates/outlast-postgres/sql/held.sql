-- The runs that a session holds, with their last turns; the history may be ahead of the row. A session that exists and
-- holds nothing has one row without a run.
SELECT r.id, CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END, greatest(last.next_seq, r.next_seq),
    {r.columns}
FROM {schema}.sessions s LEFT JOIN {schema}.runs r ON r.owner = s.id
LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last ON true
WHERE s.id = $1 AND s.ended_at IS NULL
ORDER BY r.owner, r.id
