-- Drops what consumed messages said; the history has it. Their ids stay.
UPDATE inbox SET name = NULL, op = NULL, outcome = NULL, codec = NULL, body = NULL, headers = NULL
WHERE run = ?1 AND position > ?2 AND position <= ?3
