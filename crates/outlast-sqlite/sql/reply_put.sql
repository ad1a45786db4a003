-- Stores the reply to a message. The first one counts.
INSERT INTO replies (run, message, at, outcome, codec, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING
