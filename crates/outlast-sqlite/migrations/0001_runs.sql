-- The first schema: runs, their histories, inboxes and tags, the sessions that hold them, and counts.
--
-- Moments are microseconds since 1970-01-01T00:00:00Z. Ids are text with a prefix.

-- One row per run. It changes at start, claim, suspension, message and end, not with every turn:
-- while a session holds the run, `turn`, `next_seq` and `turn_at` are those of the last such
-- change, and the truth is the last row of `turns` when that one is ahead. `codeless` is the position
-- of an unread message that the run can obey without its workflow's code, or 0. A pending run with
-- `wake_at` begins then. `deadline` is null when there is none or it no longer counts.
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
    codeless      INTEGER NOT NULL DEFAULT 0,
    sent          INTEGER NOT NULL DEFAULT 0,
    consumed      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    stuck_reason  TEXT,
    stuck_message TEXT,
    stuck_build   TEXT,
    barred_build  TEXT,
    parent        TEXT,
    parent_op     INTEGER,
    parent_awaits INTEGER,
    root          TEXT,
    deadline      INTEGER
) STRICT, WITHOUT ROWID;

-- A key names one run, until a start with a window takes it away.
CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key IS NOT NULL;

-- Claims seek here: `ready_at` is null whenever nobody may claim the run.
CREATE INDEX runs_ready ON runs (workflow, version, ready_at) WHERE ready_at IS NOT NULL;

-- Runs that any worker may claim, because what they need takes no workflow code.
CREATE INDEX runs_codeless ON runs (ready_at) WHERE ready_at IS NOT NULL AND codeless > 0;

-- Runs that nobody holds, by when they should have ended. A run that has ended has no deadline.
CREATE INDEX runs_overdue ON runs (deadline, id) WHERE deadline IS NOT NULL AND owner IS NULL;

-- What a session holds, and which of it has unread messages.
CREATE INDEX runs_held ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unread ON runs (owner) WHERE owner IS NOT NULL AND sent > consumed;

-- Runs that a newly joined build may try again.
CREATE INDEX runs_stuck ON runs (workflow, version) WHERE status = 'stuck';

-- Lists. Completed runs are most of all runs, so a list of them finds some wherever it looks.
CREATE INDEX runs_by_status ON runs (status, id) WHERE status <> 'completed';
CREATE INDEX runs_by_workflow ON runs (workflow, id);
CREATE INDEX runs_by_parent ON runs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_root ON runs (root, id) WHERE root IS NOT NULL;

-- What runs can be found by.
CREATE TABLE tags (
    run   TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_value ON tags (name, value, run);

-- Histories, one row per turn; `seq` is the number of the turn's first event. Rows are appended, and
-- found by an index: kept in order of runs instead, each turn of another run would write a page.
CREATE TABLE turns (
    run    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    id     TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    build  TEXT    NOT NULL,
    events TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX turns_by_run ON turns (run, seq);

-- Histories, one row per event, for people: SELECT * FROM events WHERE run = 'run_…' ORDER BY seq.
CREATE VIEW events (run, seq, at, kind, op, body) AS
SELECT turns.run, turns.seq + event.key, turns.at, event.value ->> 'kind', event.value ->> 'op', event.value
FROM turns, json_each(turns.events) AS event;

-- Inboxes. A consumed message keeps its id, so that a repeat is recognised, and loses its body: a
-- payload (written by `codec`, if any), a failure, a reason or the id of a run, as its kind says. `name`
-- is a hook's, `op` the operation that it answers or wakes, `outcome` the status in which a child ended.
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
    PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX inbox_id ON inbox (run, id);

-- One row per joined worker. Deleting it takes its runs away: it is looked at in every transaction
-- that commits turns. `strangers` counts the changes to its runs by processes that did not join it.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    host       TEXT    NOT NULL,
    pid        INTEGER NOT NULL,
    build      TEXT    NOT NULL,
    code       TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    joined_at  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    strangers  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- How many runs are in each status, maintained with every change.
CREATE TABLE counts (
    status TEXT    NOT NULL PRIMARY KEY,
    n      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
