-- Releases a run that cannot go on. Nothing is consumed; nobody may claim it until another build
-- joins or someone resumes it, unless there is a message that needs no code.
UPDATE runs SET status = 'stuck', owner = NULL, preferred = NULL, turn = ?2, next_seq = ?3, turn_at = ?4,
    updated_at = ?5, wake_at = NULL, waits = '[]', crashes = ?6, stuck_reason = ?7,
    stuck_message = ?8, stuck_build = ?9, barred_build = ?9,
    ready_at = iif(codeless > consumed AND (?3 = 1 OR terminate.position IS NOT NULL), ?5, NULL),
    codeless = CASE WHEN codeless <= consumed THEN 0 WHEN ?3 = 1 THEN codeless ELSE
        coalesce(terminate.position, 0) END
FROM (SELECT max(position) AS position FROM inbox
      WHERE run = ?1 AND kind = 'terminate'
        AND position > (SELECT consumed FROM runs WHERE id = ?1)) AS terminate
WHERE id = ?1
