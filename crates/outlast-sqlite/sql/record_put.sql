-- Stores a record, and replaces the one that exists.
INSERT INTO records (space, id, body, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (space, id) DO UPDATE SET body = excluded.body, at = excluded.at
