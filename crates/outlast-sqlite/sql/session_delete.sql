-- Ends a session; from here on its commits are refused.
DELETE FROM sessions WHERE id = ?1
