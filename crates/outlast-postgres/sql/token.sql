-- A token, and its run: whether it exists, and when it ended.
SELECT t.run, t.op, t.hook, t.opened_at, t.keep_for, t.kept_until, t.webhook, t.body IS NOT NULL OR t.raw IS NOT NULL,
    t.codec, t.body, t.raw, r.id IS NOT NULL, r.ended_at
FROM {schema}.tokens t LEFT JOIN {schema}.runs r ON r.id = t.run WHERE t.hash = $1
