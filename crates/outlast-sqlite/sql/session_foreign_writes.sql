-- Whether a session exists, and how often processes that did not join it have changed its runs.
SELECT strangers FROM sessions WHERE id = ?1
