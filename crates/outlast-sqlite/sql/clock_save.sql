-- Saves the current time, unless the saved one is later.
INSERT INTO clock (id, at) VALUES (1, ?1)
ON CONFLICT DO UPDATE SET at = excluded.at WHERE excluded.at > at
