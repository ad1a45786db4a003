-- The directory of tokens. `hash` is the SHA-256 of the token, in hexadecimal. The token of a run that has ended stays
-- until another run takes it, or the run is deleted. `kept_until` is set when it was closed and is kept for some time;
-- `keep_for` is that time, in microseconds. `webhook` is JSON, and the metadata are `body` or `raw`, written by `codec`.
CREATE TABLE {schema}.tokens (
    hash       text COLLATE "C" NOT NULL,
    run        text COLLATE "C" NOT NULL,
    op         bigint NOT NULL,
    hook       text   NOT NULL,
    opened_at  bigint NOT NULL,
    keep_for   bigint,
    kept_until bigint,
    webhook    text,
    codec      text,
    body       text,
    raw        bytea,
    CONSTRAINT tokens_pkey PRIMARY KEY (hash)
)
