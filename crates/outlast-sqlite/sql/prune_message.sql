-- Deletes a message.
DELETE FROM inbox WHERE run = ?1 AND position = ?2
