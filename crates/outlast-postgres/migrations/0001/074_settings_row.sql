-- By default the world's clock is the server's.
INSERT INTO {schema}.settings (one, clock_offset) VALUES (true, 0)
