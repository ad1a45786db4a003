-- One row per joined worker. Every commit locks it and checks `ended_at`: a session that has ended cannot commit. The
-- row is deleted when the session holds no runs any more. `crashed` is why it ended, and the `held_` columns are what
-- it held then. `boot` is the start time of the server at the last beat. `lock_free_since` is when its advisory lock
-- was first found free; a session without `has_lock` has none. `interface` is the set of functions that its program
-- calls.
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
