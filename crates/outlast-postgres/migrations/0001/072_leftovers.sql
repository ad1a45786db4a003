-- Runs that were forgotten and left too much behind for one statement.
CREATE TABLE {schema}.leftovers (
    run text COLLATE "C" NOT NULL,
    CONSTRAINT leftovers_pkey PRIMARY KEY (run)
)
