-- One row per joined worker. Every commit locks it and checks `ended_at`: a session that has ended commits nothing
-- any more. It is deleted when nobody holds runs by it. `crashed` says why it ended, and the `held_` columns what it
-- held then. `boot` is when the server had started at the last beat, `lock_free_since` when its advisory lock was first
-- found free; one without `has_lock` never had any. `interface` is the set of functions that its program calls.
CREATE TABLE {schema}.sessions (
    id              text COLLATE "C" NOT NULL,
    host            text   NOT NULL,
    pid             bigint NOT NULL,
    build           text   NOT NULL,
    code            text   NOT NULL,
    queues          text   NOT NULL,
    time            bigint NOT NULL,
    rules           integer NOT NULL,
    format          integer NOT NULL,
    interface       integer NOT NULL,
    joined_at       bigint NOT NULL,
    expires_at      bigint NOT NULL,
    beat_at         bigint NOT NULL,
    boot            bigint NOT NULL,
    has_lock        boolean NOT NULL,
    lock_free_since bigint,
    report          text   NOT NULL DEFAULT '{}',
    ended_at        bigint,
    crashed         boolean,
    held_runs       bigint,
    held_class      integer,
    CONSTRAINT sessions_pkey PRIMARY KEY (id)
) WITH (fillfactor = 50)
