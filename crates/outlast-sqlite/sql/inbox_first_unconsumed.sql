-- When the first message was accepted that lies behind what a turn consumed.
SELECT at FROM inbox WHERE run = ?1 AND position > ?2 ORDER BY position LIMIT 1
