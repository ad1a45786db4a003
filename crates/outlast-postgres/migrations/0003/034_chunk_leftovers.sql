-- Deleted runs whose chunks are still being deleted.
CREATE TABLE {schema}.chunk_leftovers (
    run text COLLATE "C" NOT NULL,
    CONSTRAINT chunk_leftovers_pkey PRIMARY KEY (run)
)
