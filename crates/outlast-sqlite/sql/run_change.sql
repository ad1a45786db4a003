-- Releases a run. The wait and the check are one statement: an unread message makes it ready at once. Of
-- those that need no code, a run that is no longer fresh can only obey the kind that the inner statement
-- looks for. No row means that the turn consumed more than was sent; else it says whether a worker may
-- have to know.
UPDATE runs SET status = ?3, owner = NULL, preferred = ?4, turn = ?5, next_seq = ?6, turn_at = ?7,
    updated_at = ?8, consumed = ?2, crashes = 0, wake_at = ?9, waits = ?10,
    ready_at = CASE WHEN sent > ?2 THEN min(?8, coalesce(?11, ?8)) ELSE ?11 END,
    deadline = iif(?12, NULL, deadline),
    codeless = CASE WHEN codeless <= ?2 THEN 0 WHEN ?6 = 1 THEN codeless ELSE
        (SELECT coalesce(max(position), 0) FROM inbox
         WHERE run = ?1 AND position > ?2 AND kind = 'terminate') END
WHERE id = ?1 AND sent >= ?2
RETURNING ready_at IS NOT NULL OR deadline IS NOT NULL
