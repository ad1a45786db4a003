-- Histories, one row per turn: `seq` is the number of its first event, `next_seq` that of the next turn. The primary
-- key ensures that two turns never begin with the same event. Rows are appended, and deleted with old runs; autovacuum
-- runs before a fifth of them is dead.
CREATE TABLE {schema}.turns (
    run      text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    next_seq bigint NOT NULL,
    id       text COLLATE "C" NOT NULL,
    at       bigint NOT NULL,
    build    text   NOT NULL,
    events   text   NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (run, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05)
