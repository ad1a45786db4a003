-- A part of the history of one run, in order.
SELECT t.id, t.seq, t.at, t.build, t.events FROM {schema}.turns t WHERE t.run = $1 AND t.seq >= $2 ORDER BY t.seq LIMIT $3
