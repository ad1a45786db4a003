-- The runs of a session that have unread messages.
SELECT id, consumed FROM runs INDEXED BY runs_unread
WHERE owner = ?1 AND sent > consumed
ORDER BY id
