-- Moves a count, once per status and transaction.
INSERT INTO counts (status, n) VALUES (?1, ?2) ON CONFLICT (status) DO UPDATE SET n = n + ?2
