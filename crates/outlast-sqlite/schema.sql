-- Generated: the schema as the migrations leave it.

CREATE UNIQUE INDEX chunks_by_stream ON chunks (run, stream, first);

CREATE UNIQUE INDEX inbox_id ON inbox (run, id);

CREATE INDEX replies_by_time ON replies (at);

CREATE INDEX runs_by_fingerprint ON runs (fingerprint, ended_at, id) WHERE fingerprint IS NOT NULL;

CREATE INDEX runs_by_parent ON runs (parent, id) WHERE parent IS NOT NULL;

CREATE INDEX runs_by_root ON runs (root, id) WHERE root IS NOT NULL;

CREATE INDEX runs_by_status ON runs (status, id);

CREATE INDEX runs_by_workflow ON runs (workflow, id);

CREATE INDEX runs_cancelling ON runs (id) WHERE cancel_requested AND ended_at IS NULL;

CREATE INDEX runs_codeless ON runs (ready_at) WHERE ready_at IS NOT NULL AND can_end;

CREATE INDEX runs_failed ON runs (ended_at, id) WHERE fingerprint IS NOT NULL;

CREATE INDEX runs_held ON runs (owner) WHERE owner IS NOT NULL;

CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key IS NOT NULL;

CREATE INDEX runs_marked ON runs (id, marks) WHERE marks <> 0;

CREATE INDEX runs_overdue ON runs (deadline, id) WHERE deadline IS NOT NULL AND owner IS NULL;

CREATE INDEX runs_ready ON runs (queue, workflow, version, line, priority DESC, ready_at)
WHERE ready_at IS NOT NULL;

CREATE INDEX runs_retrying ON runs (id) WHERE retrying;

CREATE INDEX runs_unread ON runs (owner) WHERE owner IS NOT NULL AND sent > consumed;

CREATE INDEX sessions_by_rules ON sessions (rules);

CREATE INDEX tags_by_value ON tags (name, value, run);

CREATE INDEX tokens_by_run ON tokens (run);

CREATE INDEX tokens_kept ON tokens (kept_until) WHERE kept_until IS NOT NULL;

CREATE UNIQUE INDEX turns_by_run ON turns (run, seq);

CREATE TABLE chunks (
    run     TEXT    NOT NULL,
    stream  TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    next    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    op      INTEGER,
    attempt TEXT,
    entries TEXT    NOT NULL
) STRICT;

CREATE TABLE clock (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
) STRICT;

CREATE TABLE compatibility (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    schema_min INTEGER NOT NULL
) STRICT;

CREATE TABLE counts (
    status TEXT    NOT NULL PRIMARY KEY,
    n      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE heartbeats (
    run     TEXT    NOT NULL,
    op      INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    codec   TEXT,
    body    ANY     NOT NULL,
    PRIMARY KEY (run, op)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    run      TEXT    NOT NULL,
    position INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    name     TEXT,
    op       INTEGER,
    outcome  TEXT,
    codec    TEXT,
    body     ANY,
    headers  TEXT,
    cancel_was_requested INTEGER NOT NULL,
    PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE leftovers (
    run TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE record_counts (
    space TEXT    NOT NULL PRIMARY KEY,
    n     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE records (
    space TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    body  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (space, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE replies (
    run     TEXT    NOT NULL,
    message TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    outcome TEXT    NOT NULL,
    codec   TEXT,
    body    ANY,
    PRIMARY KEY (run, message)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    id            TEXT    NOT NULL PRIMARY KEY,
    workflow      TEXT    NOT NULL,
    version       INTEGER NOT NULL,
    format        INTEGER NOT NULL,
    key           TEXT,
    key_digest    TEXT,
    status        TEXT    NOT NULL,
    owner         TEXT,
    preferred     TEXT,
    turn          TEXT    NOT NULL,
    next_seq      INTEGER NOT NULL,
    turn_at       INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    wake_at       INTEGER,
    waits         TEXT    NOT NULL DEFAULT '[]',
    ready_at      INTEGER,
    sent          INTEGER NOT NULL DEFAULT 0,
    consumed      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    stuck_reason  TEXT,
    stuck_message TEXT,
    stuck_build   TEXT,
    failed_builds TEXT    NOT NULL DEFAULT '',
    failed_at     INTEGER NOT NULL DEFAULT 0,
    kept          INTEGER NOT NULL DEFAULT 0,
    last_terminate INTEGER NOT NULL DEFAULT 0,
    last_cancel   INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    parent        TEXT,
    parent_op     INTEGER,
    parent_awaits INTEGER,
    root          TEXT,
    deadline      INTEGER,
    queue         TEXT    NOT NULL,
    priority      INTEGER NOT NULL,
    can_end       INTEGER NOT NULL GENERATED ALWAYS AS
        (last_terminate > consumed OR next_seq <= 1 AND last_cancel > consumed) VIRTUAL,
    line          TEXT    NOT NULL GENERATED ALWAYS AS
        (format || ' ' || iif(crashes < 2, 0, min(crashes, 4)) || ' ' || failed_builds) VIRTUAL
, marks INTEGER NOT NULL DEFAULT 0, replay_from INTEGER NOT NULL DEFAULT 0, continued INTEGER NOT NULL DEFAULT 0, retrying INTEGER NOT NULL DEFAULT 0, failure TEXT, fingerprint INTEGER) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    build      TEXT    NOT NULL,
    code       TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    joined_at  INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    queues     TEXT    NOT NULL,
    report     TEXT    NOT NULL DEFAULT '{}',
    rules      INTEGER NOT NULL,
    format     INTEGER NOT NULL,
    schema     INTEGER NOT NULL,
    strangers  INTEGER NOT NULL DEFAULT 0
, version TEXT) STRICT, WITHOUT ROWID;

CREATE TABLE skew (
    one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    lowest  INTEGER NOT NULL,
    highest INTEGER NOT NULL
) STRICT;

CREATE TABLE states (
    run     TEXT    NOT NULL PRIMARY KEY,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    version INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    codec   TEXT,
    body    ANY
) STRICT, WITHOUT ROWID;

CREATE TABLE stream_writers (
    run     TEXT    NOT NULL,
    op      INTEGER NOT NULL,
    stream  TEXT    NOT NULL,
    attempt TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    next    INTEGER NOT NULL,
    PRIMARY KEY (run, op, stream)
) STRICT, WITHOUT ROWID;

CREATE TABLE streams (
    run       TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    first     INTEGER NOT NULL DEFAULT 0,
    next      INTEGER NOT NULL DEFAULT 0,
    closed_by TEXT,
    keep_last INTEGER,
    dropped   INTEGER NOT NULL DEFAULT 0,
    late      INTEGER NOT NULL DEFAULT 0,
    turn      TEXT,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
    run   TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

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

CREATE TABLE turns (
    run    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    id     TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    build  TEXT    NOT NULL,
    events TEXT    NOT NULL
) STRICT;

CREATE VIEW events (run, seq, at, kind, op, body) AS
SELECT turns.run, turns.seq + event.key, turns.at, event.value ->> 'kind', event.value ->> 'op', event.value
FROM turns, json_each(turns.events) AS event;
