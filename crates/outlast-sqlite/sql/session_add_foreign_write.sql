-- Tells the process that joined a session that another process has changed its runs: that process must discard its
-- cache.
UPDATE sessions SET strangers = strangers + 1 WHERE id = ?1
