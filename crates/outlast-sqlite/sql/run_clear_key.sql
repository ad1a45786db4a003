-- Removes the key of a run that was started before the window of the key, so that another run can have it.
UPDATE runs SET key = NULL, key_digest = NULL WHERE id = ?1
