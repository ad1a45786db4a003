-- Records: small documents beside the runs.

-- A record has an id in a space. `at` is when it was stored last.
CREATE TABLE records (
    space TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    body  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (space, id)
) STRICT, WITHOUT ROWID;

-- The number of records of each space, which is limited.
CREATE TABLE record_counts (
    space TEXT    NOT NULL PRIMARY KEY,
    n     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
