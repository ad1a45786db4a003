-- Closes a token that the operation of a run holds, and keeps it for some time.
UPDATE tokens SET kept_until = ?4 WHERE hash = ?1 AND run = ?2 AND op = ?3 AND kept_until IS NULL
