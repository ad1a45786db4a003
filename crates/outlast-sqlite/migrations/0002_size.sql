-- What files with millions of runs need.

-- How far the time in a run's id may lie from the time of its start, in milliseconds: at least and at the
-- most, over all runs there ever were. Ids have the clock of whoever made them, starts have the world's.
CREATE TABLE skew (
    one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    lowest  INTEGER NOT NULL,
    highest INTEGER NOT NULL
) STRICT;

-- Of runs from before nothing is known: their lists by time are walked, a part at a time.
INSERT INTO skew (one, lowest, highest)
SELECT 1, -4611686018427387904, 4611686018427387904 WHERE EXISTS (SELECT 1 FROM runs);

-- Lists by status, the completed ones included: among many that wait they are as hard to find as others.
DROP INDEX runs_by_status;
CREATE INDEX runs_by_status ON runs (status, id);

-- Runs that were forgotten and left too much behind for one transaction.
CREATE TABLE leftovers (
    run TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;
