-- The answer to a message that was sent before.
SELECT position, cancel_was_requested FROM inbox WHERE run = ?1 AND id = ?2
