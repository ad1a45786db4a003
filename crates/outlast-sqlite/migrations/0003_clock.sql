-- The world's clock: the latest moment that a beat has seen. A process that finds its machine's clock
-- set back goes on from here, so that what is ready is not late. One row at the most.
CREATE TABLE clock (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
) STRICT;
