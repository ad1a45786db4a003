-- Takes a token.
INSERT INTO tokens (hash, run, op, hook, opened_at, keep_for, webhook, codec, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (hash) DO UPDATE SET run = excluded.run, op = excluded.op, hook = excluded.hook,
    opened_at = excluded.opened_at, keep_for = excluded.keep_for, kept_until = NULL, webhook = excluded.webhook,
    codec = excluded.codec, metadata = excluded.metadata
