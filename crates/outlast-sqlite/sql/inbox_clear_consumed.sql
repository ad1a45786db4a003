-- Clears the bodies of consumed messages, which the history contains. Their ids remain, to recognise repeated sends.
UPDATE inbox SET name = NULL, op = NULL, outcome = NULL, codec = NULL, body = NULL, headers = NULL
WHERE run = ?1 AND position > ?2 AND position <= ?3
