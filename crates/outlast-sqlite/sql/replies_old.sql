-- Replies that were stored by a time.
SELECT run, message FROM replies WHERE at <= ?1 ORDER BY at LIMIT ?2
