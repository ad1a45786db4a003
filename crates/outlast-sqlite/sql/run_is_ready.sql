-- Whether a run can be claimed, now or later.
SELECT ready_at IS NOT NULL FROM runs WHERE id = ?1
