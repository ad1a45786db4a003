-- Changes the number of runs in a status. It is executed once per status and transaction.
INSERT INTO counts (status, n) VALUES (?1, ?2) ON CONFLICT (status) DO UPDATE SET n = n + ?2
