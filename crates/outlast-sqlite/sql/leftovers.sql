-- Forgotten runs of which rows are still there.
SELECT run FROM leftovers LIMIT ?1
