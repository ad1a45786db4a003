-- The marks of a run.
SELECT marks FROM runs WHERE id = ?1
