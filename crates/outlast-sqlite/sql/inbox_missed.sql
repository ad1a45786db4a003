-- Whether a message was accepted up to a moment that lies behind what a turn consumed.
SELECT EXISTS (SELECT 1 FROM inbox WHERE run = ?1 AND position > ?2 AND at <= ?3)
