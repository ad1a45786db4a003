-- Gives a run to a session. Why it was stuck, and which builds could not continue it, stay until it progresses.
UPDATE runs SET status = 'running', owner = ?2, updated_at = ?3, wake_at = NULL, waits = '[]', ready_at = NULL
WHERE id = ?1
