-- Adds to the number of records of a space.
INSERT INTO record_counts (space, n) VALUES (?1, ?2) ON CONFLICT (space) DO UPDATE SET n = n + excluded.n
