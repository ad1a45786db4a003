-- Notes what a held run consumed, that its crashes are forgiven or its deadline no longer counts, or a
-- turn that has no events. No change means that the turn consumed more than was sent.
UPDATE runs SET consumed = ?2, crashes = 0, turn = ?3, next_seq = ?4, turn_at = ?5,
    deadline = iif(?6, NULL, deadline)
WHERE id = ?1 AND sent >= ?2
