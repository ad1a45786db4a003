-- Whether there is such a run, and what it has consumed.
SELECT consumed FROM runs WHERE id = ?1
