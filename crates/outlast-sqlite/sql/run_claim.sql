-- Gives a run to a session. The build that left it stuck stays barred.
UPDATE runs SET status = 'running', owner = ?2, updated_at = ?3, wake_at = NULL, waits = '[]',
    ready_at = NULL, stuck_reason = NULL, stuck_message = NULL, stuck_build = NULL
WHERE id = ?1
