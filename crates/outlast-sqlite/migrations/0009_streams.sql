-- Streams and published states.

-- The streams of runs. `first` is the index of the first entry that is kept, `next` that of the next one. `closed_by` is
-- `workflow` or the number of a step's operation. `turn` is the last turn whose workflow wrote to the stream.
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

-- The newest attempt of each operation that has written to a stream: the index of the first entry that it may have
-- written, and the number of chunks that it has written.
CREATE TABLE stream_writers (
    run     TEXT    NOT NULL,
    op      INTEGER NOT NULL,
    stream  TEXT    NOT NULL,
    attempt TEXT    NOT NULL,
    first   INTEGER NOT NULL,
    next    INTEGER NOT NULL,
    PRIMARY KEY (run, op, stream)
) STRICT, WITHOUT ROWID;

-- The entries of streams. A row has all entries that were written together, as JSON. `op` and `attempt` are null for
-- those of a workflow.
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

CREATE UNIQUE INDEX chunks_by_stream ON chunks (run, stream, first);

-- The state that each run has published last. `turn` is the turn that wrote it.
CREATE TABLE states (
    run     TEXT    NOT NULL PRIMARY KEY,
    turn    TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    version INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    codec   TEXT,
    body    ANY
) STRICT, WITHOUT ROWID;
