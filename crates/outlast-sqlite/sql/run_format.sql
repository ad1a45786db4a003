-- The format that readers of a run need.
SELECT format FROM runs WHERE id = ?1
