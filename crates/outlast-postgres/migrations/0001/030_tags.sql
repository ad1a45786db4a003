-- The tags of runs.
CREATE TABLE {schema}.tags (
    run   text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    CONSTRAINT tags_pkey PRIMARY KEY (run, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
