-- Notes how far a run's id lies from its start. Answers how far apart they may lie from now on.
INSERT INTO skew (one, lowest, highest) VALUES (1, ?1, ?1)
ON CONFLICT (one) DO UPDATE SET lowest = min(lowest, ?1), highest = max(highest, ?1)
RETURNING lowest, highest
