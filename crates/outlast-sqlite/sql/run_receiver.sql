-- What decides whether a run takes a message, and when it is ready then. The row of a held run may still call it
-- fresh when it no longer is. The waits matter only if the run keeps payloads.
SELECT status, sent, consumed, next_seq, kept, cancel_requested, last_terminate, last_cancel, owner IS NOT NULL,
    wake_at IS NOT NULL, ready_at, CASE WHEN kept > 0 THEN waits ELSE '[]' END
FROM runs WHERE id = ?1
