-- The records of a space before an id, the highest id first; all of them if there is no id.
SELECT id, body, at FROM records WHERE space = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3
