-- Where a message is that was sent before.
SELECT position FROM inbox WHERE run = ?1 AND id = ?2
