-- The parts of the histories of several runs that replays need.
SELECT t.id, t.seq, t.at, t.build, t.events, t.run FROM unnest($1::text[]) AS asked (run)
JOIN {schema}.runs r ON r.id = asked.run
CROSS JOIN LATERAL (SELECT * FROM {schema}.turns t WHERE t.run = r.id AND t.seq >= r.replay_from ORDER BY t.seq) t
ORDER BY t.run, t.seq
