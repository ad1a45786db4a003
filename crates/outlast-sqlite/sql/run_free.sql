-- Takes a run from a session that is gone. Which of the ready times counts depends on the messages that are
-- there now.
UPDATE runs SET status = ?2, owner = NULL, preferred = NULL, turn = ?3, next_seq = ?4, turn_at = ?5,
    updated_at = ?6, wake_at = NULL, waits = '[]', crashes = ?7, stuck_reason = ?8, stuck_message = ?9,
    stuck_build = ?10, failed_builds = ?11, failed_at = ?12,
    ready_at = CASE WHEN last_terminate > consumed OR ?4 <= 1 AND last_cancel > consumed THEN ?15
                    WHEN sent > consumed THEN ?14
                    ELSE ?13 END
WHERE id = ?1
