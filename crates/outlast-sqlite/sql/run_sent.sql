-- Counts a message, and wakes a run that nobody holds. One that is stuck or begins later stays as it is,
-- unless the message needs no code.
UPDATE runs SET sent = ?2, updated_at = ?3,
    ready_at = CASE WHEN owner IS NOT NULL THEN ready_at
                    WHEN NOT ?4 AND (status = 'stuck' OR status = 'pending' AND wake_at IS NOT NULL) THEN ready_at
                    ELSE min(coalesce(ready_at, ?3), ?3) END,
    codeless = iif(?4, ?2, codeless)
WHERE id = ?1
