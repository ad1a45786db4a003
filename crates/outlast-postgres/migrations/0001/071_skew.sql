-- How far the time in a run's id may lie from the time of its start, in milliseconds: at least and at the
-- most, over all runs there ever were. Ids have the clock of whoever made them, starts have the world's.
CREATE TABLE {schema}.skew (
    one     boolean NOT NULL,
    lowest  bigint  NOT NULL,
    highest bigint  NOT NULL,
    CONSTRAINT skew_pkey PRIMARY KEY (one),
    CONSTRAINT skew_one CHECK (one)
)
