-- Replies to messages. `outcome` is `answered`, `rejected` or `not_answered`; `body` or `raw` is the payload, written by
-- `codec`, or the reason.
CREATE TABLE {schema}.replies (
    run     text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    at      bigint NOT NULL,
    outcome text   NOT NULL,
    codec   text,
    body    text,
    raw     bytea,
    CONSTRAINT replies_pkey PRIMARY KEY (run, message)
)
