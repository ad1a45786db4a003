-- How far attempts at steps have come, as they said with their last heartbeat: outside the history, until the attempt
-- ends or its run is forgotten. `raw` has a payload that is not text.
CREATE TABLE {schema}.heartbeats (
    run     text COLLATE "C" NOT NULL,
    op      bigint  NOT NULL,
    attempt bigint  NOT NULL,
    codec   text,
    body    text,
    raw     bytea,
    CONSTRAINT heartbeats_pkey PRIMARY KEY (run, op)
) WITH (fillfactor = 70)
