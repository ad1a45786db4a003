-- The schema: runs, their histories, inboxes and tags, the sessions that hold them, and counts.
--
-- Times are microseconds since 1970-01-01T00:00:00Z. Ids are text with a prefix.

-- One row per run. It changes at start, claim, suspension, message and end, not with every turn:
-- while a session holds the run, `turn`, `next_seq` and `turn_at` are those of the last such
-- change, and the last row of `turns` may be newer. A pending run with `wake_at` begins at that time.
-- `deadline` is null if there is none or it does not apply any more.
--
-- `failed_builds` lists the builds that could not continue the run (a JSON array, or empty) since event
-- `failed_at`. The `stuck_*` columns stay while a stuck run is claimed, until it progresses.
-- `last_terminate` and `last_cancel` are the positions of the last such messages, and `can_end` says
-- whether the run can be ended without its workflow's code. `kept` is the number of payloads that no hook has taken.
--
-- `line` contains what decides who may claim the run, apart from its queue and code: the format, the crash class
-- (classes 0 and 1 are treated alike) and the failed builds. A worker may claim all runs of a line, or none of them.
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
) STRICT, WITHOUT ROWID;

-- A key belongs to one run, until a start after its window gives it to another run.
CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key IS NOT NULL;

-- For claims: `ready_at` is null if nobody may claim the run. The index is sorted by queue, workflow, `line` and
-- priority, then by time. A claim reads each line that its worker may claim from its front, and skips the others. The
-- claim itself decides the order among lines.
CREATE INDEX runs_ready ON runs (queue, workflow, version, line, priority DESC, ready_at)
WHERE ready_at IS NOT NULL;

-- Runs that any worker may claim, because they can be ended without their workflow's code.
CREATE INDEX runs_codeless ON runs (ready_at) WHERE ready_at IS NOT NULL AND can_end;

-- Runs that no session holds, by deadline. A run that has ended has no deadline.
CREATE INDEX runs_overdue ON runs (deadline, id) WHERE deadline IS NOT NULL AND owner IS NULL;

-- The runs that a session holds, and those of them with unread messages.
CREATE INDEX runs_held ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unread ON runs (owner) WHERE owner IS NOT NULL AND sent > consumed;

-- For lists. The index by status includes completed runs: they may be few among many that wait.
CREATE INDEX runs_by_status ON runs (status, id);
CREATE INDEX runs_by_workflow ON runs (workflow, id);
CREATE INDEX runs_by_parent ON runs (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX runs_by_root ON runs (root, id) WHERE root IS NOT NULL;

-- The tags of runs.
CREATE TABLE tags (
    run   TEXT NOT NULL,
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_value ON tags (name, value, run);

-- Histories, one row per turn; `seq` is the number of the turn's first event. Rows are appended and
-- found through an index: if they were sorted by run, the turns of different runs would write different pages.
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

-- Inboxes. A consumed message keeps its id, so that a repeated send is recognised, and loses its body. Depending on
-- `kind`, the body is a payload (encoded by `codec`, if any), a failure, a reason or the id of a run. `name` is the name
-- of a hook, `op` the operation that the message answers or wakes, `outcome` the final status of a child.
-- `cancel_was_requested` is part of the answer to the sender, for repeated sends.
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

CREATE UNIQUE INDEX inbox_id ON inbox (run, id);

-- One row per joined worker. Deleting it releases its runs: every transaction that commits turns reads it.
-- `rules`, `format` and `schema` are the highest that its build supports. `strangers` is the number of changes to its
-- runs by processes that did not join it.
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
) STRICT, WITHOUT ROWID;

-- For the lowest rules that all joined sessions support, which new runs get.
CREATE INDEX sessions_by_rules ON sessions (rules);

-- The last heartbeat details of attempts. They are stored until the attempt ends or its run is pruned.
CREATE TABLE heartbeats (
    run     TEXT    NOT NULL,
    op      INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    codec   TEXT,
    body    ANY     NOT NULL,
    PRIMARY KEY (run, op)
) STRICT, WITHOUT ROWID;

-- The number of runs in each status, updated with every change.
CREATE TABLE counts (
    status TEXT    NOT NULL PRIMARY KEY,
    n      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The smallest and the largest difference between the time in a run's id and the time of its start, in milliseconds,
-- of all runs ever started. Ids contain the time of the client's clock, starts have the time of the world's clock.
CREATE TABLE skew (
    one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    lowest  INTEGER NOT NULL,
    highest INTEGER NOT NULL
) STRICT;

-- Deleted runs with more turns and messages than one transaction deletes.
CREATE TABLE leftovers (
    run TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- The latest time that a beat has seen. A process whose system clock was set back continues from this time, so that
-- ready runs are not delayed. At most one row.
CREATE TABLE clock (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
) STRICT;

-- The lowest schema that a program must know to use this file. Each migration writes it. `user_version` is the schema of
-- the file.
CREATE TABLE compatibility (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    schema_min INTEGER NOT NULL
) STRICT;
