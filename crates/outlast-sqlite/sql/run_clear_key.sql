-- Takes the key from a run that was started too long ago to count, so that another may have it.
UPDATE runs SET key = NULL, key_digest = NULL WHERE id = ?1
