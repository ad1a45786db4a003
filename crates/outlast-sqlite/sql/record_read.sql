-- A record.
SELECT id, body, at FROM records WHERE space = ?1 AND id = ?2
