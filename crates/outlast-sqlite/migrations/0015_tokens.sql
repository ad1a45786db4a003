-- Tokens of open hooks, and replies to messages.

-- The directory of tokens. `hash` is the SHA-256 of the token, in hexadecimal. The token of a run that has ended stays
-- until another run takes it, or the run is deleted. `kept_until` is set when it was closed and is kept for some time;
-- `keep_for` is that time, in microseconds. `webhook` is JSON.
CREATE TABLE tokens (
    hash       TEXT    NOT NULL PRIMARY KEY,
    run        TEXT    NOT NULL,
    op         INTEGER NOT NULL,
    hook       TEXT    NOT NULL,
    opened_at  INTEGER NOT NULL,
    keep_for   INTEGER,
    kept_until INTEGER,
    webhook    TEXT,
    codec      TEXT,
    metadata   ANY
) STRICT, WITHOUT ROWID;

CREATE INDEX tokens_by_run ON tokens (run);
CREATE INDEX tokens_kept ON tokens (kept_until) WHERE kept_until IS NOT NULL;

-- Replies to messages. `outcome` is `answered`, `rejected` or `not_answered`; the body is a payload or a reason.
CREATE TABLE replies (
    run     TEXT    NOT NULL,
    message TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    outcome TEXT    NOT NULL,
    codec   TEXT,
    body    ANY,
    PRIMARY KEY (run, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX replies_by_time ON replies (at);
