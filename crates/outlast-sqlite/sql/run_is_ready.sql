-- Whether a run is or will be ready to be claimed.
SELECT ready_at IS NOT NULL FROM runs WHERE id = ?1
