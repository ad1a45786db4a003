//! A schema with very many runs, which few statements insert.

use outlast_core::{RunId, Timestamp};

use super::TestSchema;

/// The milliseconds in the id of run 0. Other ids differ from it in the last five digits of the time.
const FIRST_MILLIS: u64 = 50_664 << 25;

/// The runs of a schema, all of workflow `w`: first those that ended, then those that wait. Of ten that ended, eight
/// completed, one failed and one was cancelled. Of ten that wait, four wait for days, two wait for a message, two have
/// a priority and are due within a minute and a half, one is stuck, and one is ready but has `b` as a failed build.
/// Every tenth run has a tag, every seventh a key, every hundredth a parent, which is run 0, every fiftieth a message,
/// and every twentieth that waits a deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargeSchema {
    /// The number of the first run; a multiple of 700, so that the first run has a key and a tag.
    pub(crate) from: u32,
    pub(crate) ended: u32,
    pub(crate) waiting: u32,
}

impl LargeSchema {
    /// The id of a run.
    pub(crate) fn id(&self, nth: u32) -> RunId {
        RunId::from_bits(u128::from(FIRST_MILLIS + u64::from(self.from + nth)) << 80)
    }

    /// The key of a run whose number is a multiple of seven.
    pub(crate) fn key(&self, nth: u32) -> String {
        format!("key {}", self.from + nth)
    }

    /// When a run was started. If it ended, it ended at the same time.
    pub(crate) fn at(&self, nth: u32) -> Timestamp {
        Timestamp::from_micros((FIRST_MILLIS as i64 + i64::from(self.from + nth)) * 1_000)
    }

    /// Fills a schema: the runs on one connection, and the rest on another.
    pub(crate) async fn fill(&self, test_schema: &TestSchema) {
        let (runs, rest) = (test_schema.connect().await, test_schema.connect().await);
        let (runs_sql, rest_sql) =
            (self.fill_placeholders(RUNS, test_schema), self.fill_placeholders(REST, test_schema));
        let (runs, rest) =
            futures_util::future::join(runs.batch_execute(&runs_sql), rest.batch_execute(&rest_sql)).await;
        runs.unwrap();
        rest.unwrap();
    }

    fn fill_placeholders(&self, sql: &str, test_schema: &TestSchema) -> String {
        let first = self.id(0).to_string();
        let digit =
            |shift: u32| format!("substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', (n >> {shift} & 31) + 1, 1)");
        let digits = [20, 15, 10, 5, 0].map(digit).join(" || ");
        let id = |prefix: &str| format!("'{prefix}{}' || {digits} || '{}'", &first[4..9], &first[14..]);
        sql.replace("{schema}", &test_schema.schema)
            .replace("{run}", &id("run_"))
            .replace("{turn}", &id("turn_"))
            .replace("{message}", &id("msg_"))
            .replace("{parent}", &first)
            .replace("{first}", &FIRST_MILLIS.to_string())
            .replace("{from}", &self.from.to_string())
            .replace("{ended}", &(self.from + self.ended).to_string())
            .replace("{last}", &(self.from + self.ended + self.waiting - 1).to_string())
    }
}

const RUNS: &str = r#"
INSERT INTO {schema}.runs (id, workflow, version, format, priority, key, key_digest, status, turn, next_seq, turn_at,
    created_at, updated_at, ended_at, wake_at, ready_at, sent, consumed, stuck_reason, stuck_message, stuck_build,
    failed_builds, failed_at, parent, parent_op, parent_awaits, root, deadline)
SELECT {run}, 'w', 1, 1, CASE WHEN sort IN (6, 7) THEN 1 + n % 9 ELSE 0 END,
    CASE WHEN n % 7 = 0 THEN 'key ' || n END, CASE WHEN n % 7 = 0 THEN '1' END,
    CASE sort WHEN -1 THEN coalesce((ARRAY['failed', 'cancelled'])[n % 10 + 1], 'completed') WHEN 8 THEN 'stuck'
        WHEN 9 THEN 'pending' ELSE 'waiting' END,
    {turn}, 2, at, at, at, CASE WHEN sort = -1 THEN at END,
    CASE WHEN sort < 8 THEN ready_at END, ready_at, (n % 50 = 0)::int, (n % 50 = 0)::int,
    CASE WHEN sort = 8 THEN 'poison' END, CASE WHEN sort = 8 THEN 'why' END, CASE WHEN sort = 8 THEN 'b' END,
    CASE WHEN sort >= 8 THEN '["b"]' ELSE '' END, CASE WHEN sort >= 8 THEN 2 ELSE 0 END, CASE WHEN n % 100 = 99 THEN '{parent}' END, CASE WHEN n % 100 = 99 THEN 1 END,
    CASE WHEN n % 100 = 99 THEN false END, CASE WHEN n % 100 = 99 THEN '{parent}' END,
    CASE WHEN sort >= 0 AND n % 20 = 0 THEN now_at + 86400000000 END
FROM (
    SELECT n, at, sort, now_at,
        CASE WHEN sort IN (0, 1, 2, 3) THEN now_at + 86400000000 + n
            WHEN sort IN (6, 7) THEN now_at + 80000000 + n WHEN sort >= 8 THEN at END AS ready_at
    FROM (
        SELECT n, ({first} + n) * 1000 AS at, CASE WHEN n < {ended} THEN -1 ELSE n % 10 END AS sort, now_at
        FROM generate_series({from}, {last}) AS n, (SELECT {schema}.clock_v3() AS now_at OFFSET 0) AS clock
    ) AS sorted
) AS new"#;

const REST: &str = r#"
INSERT INTO {schema}.turns (run, seq, next_seq, id, at, build, events)
SELECT {run}, 0, 2, {turn}, ({first} + n) * 1000, 'b', '[{"kind":"run_completed","output":null}]'
FROM generate_series({from}, {last}) AS n;
INSERT INTO {schema}.tags (run, name, value)
SELECT {run}, 'shop', (n % 1000)::text FROM generate_series({from}, {last}, 10) AS n;
INSERT INTO {schema}.inbox (run, position, id, at, kind)
SELECT {run}, 1, {message}, ({first} + n) * 1000, 'wake' FROM generate_series({from}, {last}, 50) AS n;
INSERT INTO {schema}.counts (status, slot, n) VALUES ('completed', -1, {ended}) ON CONFLICT DO NOTHING;
SELECT {schema}.widen_v3(0, 0)"#;
