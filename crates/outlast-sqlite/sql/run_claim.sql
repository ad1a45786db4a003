-- Assigns a run to a session. The columns of a stuck run and of failed builds remain until the run progresses.
UPDATE runs SET status = 'running', owner = ?2, updated_at = ?3, wake_at = NULL, waits = '[]', ready_at = NULL
WHERE id = ?1
