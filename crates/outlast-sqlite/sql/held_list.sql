-- The runs of a session with their last turns; the history may be ahead of the row.
SELECT runs.id, runs.turn, runs.next_seq, runs.turn_at,
    last.id, last.seq + json_array_length(last.events), last.at,
    {columns}
FROM runs
LEFT JOIN turns AS last
    ON last.run = runs.id AND last.seq = (SELECT max(seq) FROM turns WHERE run = runs.id)
WHERE runs.owner = ?1
ORDER BY runs.id
