-- Ends a run. No change means that the turn consumed more than was sent.
UPDATE runs SET status = ?3, owner = NULL, preferred = NULL, turn = ?4, next_seq = ?5, turn_at = ?6,
    updated_at = ?7, ended_at = ?7, consumed = ?2, crashes = 0, wake_at = NULL, waits = '[]',
    ready_at = NULL, codeless = 0, deadline = NULL
WHERE id = ?1 AND sent >= ?2
