-- Deletes a token.
DELETE FROM tokens WHERE hash = ?1
