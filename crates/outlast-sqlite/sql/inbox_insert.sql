-- Appends a message. If no row is inserted, the message was sent before.
INSERT INTO inbox (run, position, id, at, kind, name, op, outcome, codec, body, headers, cancel_was_requested)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT (run, id) DO NOTHING
