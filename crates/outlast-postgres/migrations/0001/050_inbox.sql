-- Inboxes. A consumed message keeps its id, so that a repetition is recognised, and loses its body if that is large.
-- The body is, depending on `kind`, a payload (written by `codec`, if any), a failure, a reason or the id of a run;
-- `raw` contains a payload that is not text. `name` is that of a hook, `op` the operation that the message answers or
-- wakes, `outcome` the status in which a child ended, and `after_cancel` whether a cancel was already requested when
-- this cancel arrived.
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
