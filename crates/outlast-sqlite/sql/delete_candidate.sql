-- One run, when it ended, and its marks.
SELECT id, status, ended_at, marks FROM runs WHERE id = ?1
