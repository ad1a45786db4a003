-- The state that each run has published last. `turn` is the turn that wrote it. `raw` contains a payload that is not
-- text; without a payload every state so far was too large.
CREATE TABLE {schema}.states (
    run     text COLLATE "C" NOT NULL,
    turn    text   NOT NULL,
    at      bigint NOT NULL,
    version bigint NOT NULL,
    dropped bigint NOT NULL,
    codec   text,
    body    text,
    raw     bytea,
    CONSTRAINT states_pkey PRIMARY KEY (run)
) WITH (fillfactor = 50)
