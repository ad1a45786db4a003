-- What decides whether a run takes a message, and whether it is fresh. The row of a held run may still
-- call it fresh when it no longer is.
SELECT status, sent, consumed, next_seq FROM runs WHERE id = ?1
