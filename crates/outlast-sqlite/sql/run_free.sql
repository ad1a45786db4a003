-- Takes a run from a session that is gone; everyone may claim it at once. Of the messages that need no
-- code, a run that is no longer fresh can only obey the kind that the inner statement looks for.
UPDATE runs SET status = ?2, owner = NULL, preferred = NULL, turn = ?3, next_seq = ?4, turn_at = ?5,
    updated_at = ?6, wake_at = NULL, waits = '[]', ready_at = ?6, crashes = ?7,
    codeless = CASE WHEN codeless <= consumed THEN 0 WHEN ?4 = 1 THEN codeless ELSE
        (SELECT coalesce(max(position), 0) FROM inbox
         WHERE run = ?1 AND position > consumed AND kind = 'terminate') END
WHERE id = ?1
