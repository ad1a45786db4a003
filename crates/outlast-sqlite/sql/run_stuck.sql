-- Releases a run that cannot go on. Nothing is consumed; nobody may claim it until another build
-- joins or someone resumes it.
UPDATE runs SET status = 'stuck', owner = NULL, preferred = NULL, turn = ?2, next_seq = ?3, turn_at = ?4,
    updated_at = ?5, wake_at = NULL, waits = '[]', ready_at = NULL, crashes = ?6, stuck_reason = ?7,
    stuck_message = ?8, stuck_build = ?9, barred_build = ?9, codeless = iif(?3 = 1 AND codeless > consumed, codeless, 0)
WHERE id = ?1
