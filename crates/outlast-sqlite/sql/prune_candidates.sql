-- The next runs in order of their ids, and when they ended.
SELECT id, status, ended_at FROM runs WHERE id > ?1 ORDER BY id LIMIT ?2
