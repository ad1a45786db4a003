-- Deleted runs of which turns or messages still exist.
SELECT run FROM leftovers LIMIT ?1
