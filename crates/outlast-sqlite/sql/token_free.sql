-- Frees a token that the operation of a run holds.
DELETE FROM tokens WHERE hash = ?1 AND run = ?2 AND op = ?3 AND kept_until IS NULL
