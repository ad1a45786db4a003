-- The columns that decide whether a run accepts a message, and when it is ready afterwards. The row of a held run may
-- be older than its history, so `next_seq` may be too low. The waits are needed only if the run keeps payloads.
SELECT status, sent, consumed, next_seq, kept, cancel_requested, last_terminate, last_cancel, owner IS NOT NULL,
    wake_at, ready_at, CASE WHEN kept > 0 THEN waits ELSE '[]' END, marks, deadline
FROM runs WHERE id = ?1
