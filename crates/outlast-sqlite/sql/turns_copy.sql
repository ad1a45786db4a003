-- Copies the turns of a run in ranges of first events, which are a JSON array of pairs, to another run.
INSERT INTO turns (run, seq, id, at, build, events)
SELECT ?2, turns.seq, turns.id, turns.at, turns.build, turns.events FROM json_each(?3) AS range
CROSS JOIN turns ON turns.run = ?1 AND turns.seq BETWEEN range.value ->> 0 AND range.value ->> 1
