-- The number of records of each space, which is limited. Whoever adds or deletes records locks the row of the space.
CREATE TABLE {schema}.record_counts (
    space text COLLATE "C" NOT NULL,
    n     bigint NOT NULL,
    CONSTRAINT record_counts_pkey PRIMARY KEY (space)
)
