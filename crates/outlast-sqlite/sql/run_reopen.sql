-- Reopens a run that has ended: it is ready now, and was not asked to stop.
UPDATE runs SET status = ?2, owner = NULL, preferred = NULL, updated_at = ?3, ended_at = NULL, wake_at = NULL, waits = '[]',
    ready_at = ?3, sent = ?4, last_terminate = 0, last_cancel = 0, cancel_requested = 0, format = max(format, ?5),
    ({assigned}) = ({values})
WHERE id = ?1
