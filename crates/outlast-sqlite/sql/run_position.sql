-- The position of a run: its row, and the last turn of its history, which may be newer than the row.
SELECT runs.owner, runs.turn, runs.next_seq, runs.consumed, last.id, last.seq + json_array_length(last.events)
FROM runs
LEFT JOIN turns AS last
    ON last.run = runs.id AND last.seq = (SELECT max(seq) FROM turns WHERE run = runs.id)
WHERE runs.id = ?1
