-- Deleted runs whose turns and messages were too many for one statement, and are still to be deleted.
CREATE TABLE {schema}.leftovers (
    run text COLLATE "C" NOT NULL,
    CONSTRAINT leftovers_pkey PRIMARY KEY (run)
)
