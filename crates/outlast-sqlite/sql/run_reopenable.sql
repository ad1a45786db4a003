-- The columns that decide whether a run that has ended can be reopened.
SELECT status, marks, next_seq, kept, continued, sent FROM runs WHERE id = ?1
