-- Whether a run exists, and the number of messages that it has consumed.
SELECT consumed FROM runs WHERE id = ?1
