-- Ends a session. Its later commits are refused.
DELETE FROM sessions WHERE id = ?1
