-- The runs of a session with their last turns; the history may be ahead of the row. The first row says whether the
-- session is there.
SELECT NULL, NULL, NULL, NULL, NULL, NULL FROM {schema}.sessions s WHERE s.id = $1 AND s.ended_at IS NULL
UNION ALL
(SELECT r.id, CASE WHEN last.next_seq > r.next_seq THEN last.id ELSE r.turn END, greatest(last.next_seq, r.next_seq),
    r.stuck_reason, r.stuck_message, r.stuck_build
FROM {schema}.runs r
LEFT JOIN LATERAL (SELECT t.id, t.next_seq FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1) last ON true
WHERE r.owner = $1
ORDER BY r.id)
