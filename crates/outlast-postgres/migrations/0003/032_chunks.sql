-- The entries of streams. A row has all entries that were written together, as JSON: those from index `first` to `next`.
-- `op` and `attempt` are null for those of a workflow.
CREATE TABLE {schema}.chunks (
    run     text COLLATE "C" NOT NULL,
    stream  text COLLATE "C" NOT NULL,
    first   bigint NOT NULL,
    next    bigint NOT NULL,
    at      bigint NOT NULL,
    op      bigint,
    attempt text,
    entries text   NOT NULL,
    CONSTRAINT chunks_pkey PRIMARY KEY (run, stream, first)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05)
