-- Releases a run whose session has ended. Which of the four ready times is stored depends on the messages that the run
-- has now, and on whether it is paused (bit 1 of its marks).
UPDATE runs SET status = ?2, owner = NULL, preferred = NULL, turn = ?3, next_seq = ?4, turn_at = ?5,
    updated_at = ?6, wake_at = NULL, waits = '[]',
    ready_at = CASE WHEN last_terminate > consumed OR ?4 <= 1 AND last_cancel > consumed THEN ?9
                    WHEN marks & 1 THEN ?10
                    WHEN sent > consumed THEN ?8
                    ELSE ?7 END,
    ({assigned}) = ({values})
WHERE id = ?1
