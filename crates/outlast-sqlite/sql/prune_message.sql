-- Forgets a message of an inbox.
DELETE FROM inbox WHERE run = ?1 AND position = ?2
