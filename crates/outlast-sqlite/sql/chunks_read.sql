-- The rows of a stream with entries from an index on. The row that contains the index is found by the index on
-- `first`, because rows follow each other without gaps. The last column says whether a newer attempt has written since.
SELECT c.first, c.at, c.op, c.attempt, c.entries, w.attempt IS NOT NULL AND w.attempt <> c.attempt
FROM chunks c LEFT JOIN stream_writers w ON w.run = c.run AND w.op = c.op AND w.stream = c.stream
WHERE c.run = ?1 AND c.stream = ?2
    AND c.first >= coalesce((SELECT max(b.first) FROM chunks b WHERE b.run = ?1 AND b.stream = ?2 AND b.first <= ?3), 0)
ORDER BY c.first LIMIT ?4
