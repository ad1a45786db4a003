-- What a message was answered with that was sent before.
SELECT position, cancel_was_requested FROM inbox WHERE run = ?1 AND id = ?2
