-- Tells the process that joined a session that another one acts for it.
UPDATE sessions SET strangers = strangers + 1 WHERE id = ?1
