-- The number of events in the history of a run: that of its row, or that of its last turn, which may be ahead.
SELECT greatest(r.next_seq, (SELECT t.next_seq FROM {schema}.turns t WHERE t.run = r.id ORDER BY t.seq DESC LIMIT 1))
FROM {schema}.runs r WHERE r.id = $1
