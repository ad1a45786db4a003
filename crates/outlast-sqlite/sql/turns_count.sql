-- The number of turns of a run in ranges of first events, which are a JSON array of pairs.
SELECT count(*) FROM json_each(?2) AS range
CROSS JOIN turns ON turns.run = ?1 AND turns.seq BETWEEN range.value ->> 0 AND range.value ->> 1
