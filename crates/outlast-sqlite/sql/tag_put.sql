-- Sets a tag of a run.
INSERT INTO tags (run, name, value) VALUES (?1, ?2, ?3) ON CONFLICT (run, name) DO UPDATE SET value = ?3
