-- Extends the range of differences between the time in a run's id and the time of its start. Returns the new range.
INSERT INTO skew (one, lowest, highest) VALUES (1, ?1, ?1)
ON CONFLICT (one) DO UPDATE SET lowest = min(lowest, ?1), highest = max(highest, ?1)
RETURNING lowest, highest
