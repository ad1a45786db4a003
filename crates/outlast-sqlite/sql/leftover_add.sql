-- Notes that rows of a forgotten run are still there.
INSERT INTO leftovers (run) VALUES (?1) ON CONFLICT DO NOTHING
