-- Counts a message, and stores how it changes when and by whom the run can be claimed.
UPDATE runs SET sent = ?2, updated_at = ?3, ready_at = ?4, last_terminate = ?5, last_cancel = ?6,
    cancel_requested = cancel_requested OR ?7, format = max(format, ?8), marks = ?9
WHERE id = ?1
