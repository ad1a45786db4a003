-- The time of the first message after those that a turn consumed.
SELECT at FROM inbox WHERE run = ?1 AND position > ?2 ORDER BY position LIMIT 1
