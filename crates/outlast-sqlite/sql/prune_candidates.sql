-- The next runs in order of their ids, when they ended, and their marks.
SELECT id, status, ended_at, marks FROM runs WHERE id > ?1 ORDER BY id LIMIT ?2
