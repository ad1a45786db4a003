-- A part of the history of one run, in order, from the turn that contains an event on.
SELECT t.id, t.seq, t.at, t.build, t.events FROM {schema}.turns t
WHERE t.run = $1 AND t.next_seq > $2
    AND t.seq >= coalesce((SELECT f.seq FROM {schema}.turns f WHERE f.run = $1 AND f.seq <= $2
        ORDER BY f.seq DESC LIMIT 1), 0)
ORDER BY t.seq LIMIT $3
