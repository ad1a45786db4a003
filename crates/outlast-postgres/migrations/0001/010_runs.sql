-- One row per run. It changes when the run starts, is claimed, waits, gets a message or ends, not with every turn:
-- while a session holds the run, `turn`, `next_seq` and `turn_at` are those of the last such change, and the run's last
-- turn is the last row of `turns`, if that is ahead. A pending run with `wake_at` begins at that time. `deadline` is
-- null if there is none or it no longer applies.
--
-- The holder writes its columns as `outlast-core` computed them (`RowChange`). Senders write `sent`, `last_terminate`,
-- `last_cancel` (positions in the inbox) and `cancel_requested`. `failed_builds` lists the builds that could not
-- continue the run at event `failed_at`. The `stuck_` columns stay while a stuck run is claimed, until it progresses.
-- The generated columns are `EndableWithoutCode::can_end`, and `crash_class` with 0 for the classes 0 and 1.
--
-- Timestamps are microseconds since 1970-01-01T00:00:00Z. Ids are text with a prefix. In texts that users choose,
-- U+E000 followed by `0` stands for NUL, which Postgres cannot store, and U+E000 followed by `1` for U+E000 itself.
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
    sent          bigint   NOT NULL DEFAULT 0,
    consumed      bigint   NOT NULL DEFAULT 0,
    last_terminate bigint  NOT NULL DEFAULT 0,
    last_cancel   bigint   NOT NULL DEFAULT 0,
    cancel_requested boolean NOT NULL DEFAULT false,
    kept          bigint   NOT NULL DEFAULT 0,
    crashes       integer  NOT NULL DEFAULT 0,
    failed_builds text COLLATE "C" NOT NULL DEFAULT '',
    failed_at     bigint   NOT NULL DEFAULT 0,
    stuck_reason  text,
    stuck_message text,
    stuck_build   text COLLATE "C",
    parent        text COLLATE "C",
    parent_op     bigint,
    parent_awaits boolean,
    root          text COLLATE "C",
    deadline      bigint,
    crash_class   smallint NOT NULL GENERATED ALWAYS AS (CASE WHEN crashes < 2 THEN 0 ELSE least(crashes, 4) END) STORED,
    ends_without_code boolean NOT NULL GENERATED ALWAYS AS (
        last_terminate > consumed OR next_seq <= 1 AND last_cancel > consumed) STORED,
    CONSTRAINT runs_pkey PRIMARY KEY (id)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05)
