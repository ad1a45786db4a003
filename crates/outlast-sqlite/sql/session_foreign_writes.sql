-- Whether a session is there, and how often a stranger changed what it holds.
SELECT strangers FROM sessions WHERE id = ?1
