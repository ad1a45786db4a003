-- Stores the row of a run after a turn. Which of the four ready times is stored depends on the messages that the run
-- has now, and on whether it is paused (bit 1 of its marks). There is no RETURNING clause: SQLite would open a table for its result, and journal every changed page.
UPDATE runs SET status = ?2, owner = ?3, preferred = ?4, turn = ?5, next_seq = ?6, turn_at = ?7,
    updated_at = coalesce(?8, updated_at), ended_at = ?9, consumed = ?10, wake_at = ?11, waits = ?12,
    cancel_requested = cancel_requested OR ?13, format = max(format, ?14),
    ready_at = CASE WHEN last_terminate > ?10 OR ?6 <= 1 AND last_cancel > ?10 THEN ?17
                    WHEN marks & ~?19 & 1 THEN ?18
                    WHEN sent > ?10 THEN ?16
                    ELSE ?15 END,
    marks = marks & ~?19 | ?20, version = coalesce(?21, version),
    ({assigned}) = ({values})
WHERE id = ?1
