-- Releases a run. The wait and the check are one statement: an unread message makes it ready at once.
-- No row means that the turn consumed more than was sent.
UPDATE runs SET status = ?3, owner = NULL, preferred = ?4, turn = ?5, next_seq = ?6, turn_at = ?7,
    updated_at = ?8, consumed = ?2, crashes = 0, wake_at = ?9, waits = ?10,
    ready_at = CASE WHEN sent > ?2 THEN min(?8, coalesce(?11, ?8)) ELSE ?11 END, codeless = iif(?6 = 1 AND codeless > ?2, codeless, 0)
WHERE id = ?1 AND sent >= ?2
RETURNING ready_at
