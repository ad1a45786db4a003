-- One row per joined worker. Deleting it takes its runs away: every commit locks it against that. `boot` is
-- when the server had started at the last beat, `suspect_since` when its advisory lock was first found free;
-- one without `has_lock` never had any.
CREATE TABLE {schema}.sessions (
    id            text COLLATE "C" NOT NULL,
    host          text   NOT NULL,
    pid           bigint NOT NULL,
    build         text   NOT NULL,
    code          text   NOT NULL,
    queues        text   NOT NULL,
    time          bigint NOT NULL,
    joined_at     bigint NOT NULL,
    expires_at    bigint NOT NULL,
    beat_at       bigint NOT NULL,
    boot          bigint NOT NULL,
    has_lock      boolean NOT NULL,
    suspect_since bigint,
    report        text   NOT NULL DEFAULT '{}',
    CONSTRAINT sessions_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50)
