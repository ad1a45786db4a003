-- Counts a message, and wakes a run that nobody holds. A stuck run stays as it is.
UPDATE runs SET sent = ?2, updated_at = ?3,
    ready_at = CASE WHEN owner IS NULL AND status <> 'stuck' THEN min(coalesce(ready_at, ?3), ?3)
                    ELSE ready_at END,
    codeless = iif(?4 AND next_seq = 1, ?2, codeless)
WHERE id = ?1
