-- Takes a run from a session that is gone; everyone may claim it at once.
UPDATE runs SET status = ?2, owner = NULL, preferred = NULL, turn = ?3, next_seq = ?4, turn_at = ?5,
    updated_at = ?6, wake_at = NULL, waits = '[]', ready_at = ?6, crashes = ?7,
    codeless = iif(?4 = 1 AND codeless > consumed, codeless, 0)
WHERE id = ?1
