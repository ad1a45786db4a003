-- Inboxes. A consumed message keeps its id, so that a repeat is recognised, and loses a body that is large:
-- a payload (written by `codec`, if any), a failure, a reason or the id of a run, as its kind says; `raw` has
-- what is not text. `name` is a hook's, `op` the operation that it answers or wakes, `outcome` the status in
-- which a child ended, `after_cancel` whether the run was asked to stop before a cancel came.
CREATE TABLE {schema}.inbox (
    run      text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    id       text COLLATE "C" NOT NULL,
    at       bigint NOT NULL,
    kind     text   NOT NULL,
    name     text,
    op       bigint,
    outcome  text,
    codec    text,
    body     text,
    raw      bytea,
    headers  text,
    after_cancel boolean,
    CONSTRAINT inbox_pkey PRIMARY KEY (run, position),
    CONSTRAINT inbox_id UNIQUE (run, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)
