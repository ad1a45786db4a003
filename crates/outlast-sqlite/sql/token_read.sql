-- A token, and its run: whether it exists, and when it ended.
SELECT t.run, t.op, t.hook, t.opened_at, t.keep_for, t.kept_until, t.webhook, t.codec, t.metadata, r.id IS NOT NULL, r.ended_at
FROM tokens t LEFT JOIN runs r ON r.id = t.run WHERE t.hash = ?1
