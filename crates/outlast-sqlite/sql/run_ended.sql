-- Whether a run exists, and whether it has ended.
SELECT ended_at IS NOT NULL FROM runs WHERE id = ?1
