-- The runs that a session holds, with their last turns. The row of a held run may be older than its history.
SELECT runs.id, runs.turn, runs.next_seq, runs.turn_at,
    last.id, last.seq + json_array_length(last.events), last.at,
    {columns}
FROM runs
LEFT JOIN turns AS last
    ON last.run = runs.id AND last.seq = (SELECT max(seq) FROM turns WHERE run = runs.id)
WHERE runs.owner = ?1
ORDER BY runs.id
