-- The details of the last heartbeat of attempts at steps. They are not part of the history; they are kept until the
-- attempt ends or its run is deleted. `raw` contains a payload that is not text.
CREATE TABLE {schema}.heartbeats (
    run     text COLLATE "C" NOT NULL,
    op      bigint  NOT NULL,
    attempt bigint  NOT NULL,
    codec   text,
    body    text,
    raw     bytea,
    CONSTRAINT heartbeats_pkey PRIMARY KEY (run, op)
) WITH (fillfactor = 70)
