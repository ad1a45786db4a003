-- One row per run. It changes at start, claim, suspension, message and end, not with every turn:
-- while a session holds the run, `turn`, `next_seq` and `turn_at` are those of the last such
-- change, and the truth is the last row of `turns` when that one is ahead. `codeless` is the position
-- of an unread message that the run can obey without its workflow's code, or 0. A pending run with
-- `wake_at` begins then. `deadline` is null when there is none or it no longer counts.
--
-- Moments are microseconds since 1970-01-01T00:00:00Z. Ids are text with a prefix. In texts that users
-- choose, U+E000 followed by `0` stands for NUL, which Postgres does not store, and `1` for itself.
CREATE TABLE {schema}.runs (
    id            text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    version       bigint   NOT NULL,
    format        integer  NOT NULL,
    queue         text COLLATE "C" NOT NULL DEFAULT 'default',
    priority      smallint NOT NULL DEFAULT 0,
    key           text COLLATE "C",
    key_digest    text COLLATE "C",
    status        text COLLATE "C" NOT NULL,
    owner         text COLLATE "C",
    preferred     text COLLATE "C",
    turn          text COLLATE "C" NOT NULL,
    next_seq      bigint   NOT NULL,
    turn_at       bigint   NOT NULL,
    created_at    bigint   NOT NULL,
    updated_at    bigint   NOT NULL,
    ended_at      bigint,
    wake_at       bigint,
    waits         text     NOT NULL DEFAULT '[]',
    ready_at      bigint,
    codeless      bigint   NOT NULL DEFAULT 0,
    sent          bigint   NOT NULL DEFAULT 0,
    consumed      bigint   NOT NULL DEFAULT 0,
    crashes       integer  NOT NULL DEFAULT 0,
    stuck_reason  text,
    stuck_message text,
    stuck_build   text COLLATE "C",
    barred_build  text COLLATE "C",
    parent        text COLLATE "C",
    parent_op     bigint,
    parent_awaits boolean,
    root          text COLLATE "C",
    deadline      bigint,
    CONSTRAINT runs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)
