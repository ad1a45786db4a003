-- The queues of held runs; a row for each, up to a limit.
SELECT queue FROM runs WHERE owner IS NOT NULL LIMIT ?1
