-- What decides whether a run takes a message.
SELECT status, sent, consumed FROM runs WHERE id = ?1
