-- The smallest and the largest difference between the time in a run's id and the time of its start, in milliseconds,
-- over all runs that were ever started. Ids have the clock of the process that created them, starts have the world's.
CREATE TABLE {schema}.skew (
    one     boolean NOT NULL,
    lowest  bigint  NOT NULL,
    highest bigint  NOT NULL,
    CONSTRAINT skew_pkey PRIMARY KEY (one),
    CONSTRAINT skew_one CHECK (one)
)
