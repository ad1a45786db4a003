//! With 1,000,000 runs that ended and 100,000 that wait, no statement reads more than with few runs.
//!
//! The server logs every plan that it executes, including those inside functions, with the rows and pages that it read.
//! The test checks plans that were made when there were few runs, plans that are made now without statistics, and plans
//! with statistics.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::large_schema::LargeSchema;
use common::{NO_EXPIRY, TestSchema, commit, completed, join, new_start, one_event_turn, request};
use outlast_core::{
    ClaimRequest, Claimed, Code, Headers, ListOrder, MessageBody, MessageId, NewChild, NewMessage, OpNumber,
    Outbox, Parent, Report, RunId, RunQuery, SessionId, Start, StartKey, Status, Tags, Then, Timestamp,
    World,
};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use serde_json::Value;

/// The full size; `OUTLAST_PLANS_PART=10` reduces it to a tenth.
const FULL: LargeSchema = LargeSchema { from: 0, ended: 1_000_000, waiting: 100_000 };

/// The runs that exist when the first plans are made.
const SMALL: LargeSchema = LargeSchema { from: 2_100_000, ended: 10_000, waiting: 1_000 };

/// Tables that stay small, and may be scanned sequentially.
const SMALL_TABLES: [&str; 7] =
    ["sessions", "counts", "skew", "unmerged", "leftovers", "settings", "migrations"];

/// The number of rows that one node of a plan may read. A page of runs examines at most 5,000.
const ROWS_MAX: f64 = 6_000.0;

/// The number of database pages that a statement may read; a prune of 1,000 runs reads the most, about 2,500. A list that
/// is filtered by a text examines 5,000 runs with their tags.
const PAGES_MAX: u64 = 2_700;
const PAGES_OF_LIST_MAX: u64 = 40_000;

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// The size from the environment.
fn configured_size() -> LargeSchema {
    let part = std::env::var("OUTLAST_PLANS_PART").map_or(1, |part| part.parse().unwrap());
    LargeSchema { ended: FULL.ended / part, waiting: FULL.waiting / part, ..FULL }
}

/// All calls of a world, made by one session. Each workload has ids of its own.
struct Workload {
    world: Arc<PostgresWorld>,
    number: u128,
    large: LargeSchema,
    /// When the workload began.
    millis: u64,
}

impl Workload {
    fn new(world: Arc<PostgresWorld>, number: u128, large: LargeSchema) -> Self {
        let millis = world.clock().now().as_micros() as u64 / 1_000;
        Self { world, number, large, millis }
    }

    fn id(&self, nth: u128) -> u128 {
        // The ids are higher than those of the existing runs, since these runs are started now.
        u128::from(self.millis) << 80 | (self.number * 1_000 + nth)
    }

    fn run(&self, nth: u128) -> RunId {
        run(self.id(nth))
    }

    fn session(&self) -> SessionId {
        SessionId::from_bits(self.number)
    }

    fn message(&self, nth: u128, to: RunId) -> NewMessage {
        let body = MessageBody::Wake { op: None };
        NewMessage { id: MessageId::from_bits(self.id(nth)), run: to, body, headers: Headers::new() }
    }

    fn keyed(&self, nth: u128) -> Start {
        let key = Some(StartKey {
            text: format!("round {} {nth}", self.number),
            digest: 1,
            window: None,
            policy: Default::default(),
        });
        Start { key, ..new_start(self.run(nth)) }
    }

    /// A claim of a worker that has the code of many workflows and steps.
    async fn claim(&self) -> Vec<Claimed> {
        let names = (0..200).flat_map(|nth| [format!("flow {nth}"), format!("step:{nth}")]);
        let code = names.chain(["w".to_owned()]).map(|name| Code { workflow: name.into(), version: 1 });
        let queues = ["default", "a", "b", "c", "d"].map(Into::into).into();
        let ends_overdue_from = Timestamp::from_micros(0);
        let request = ClaimRequest { code: code.collect(), queues, ends_overdue_from, ..request() };
        self.world.claim(self.session(), request).await.unwrap().claimed
    }

    async fn all(&self) {
        self.work().await;
        self.read().await;
        self.end_sessions().await;
    }

    async fn work(&self) {
        let world = &*self.world;
        join(world, self.session(), NO_EXPIRY).await;
        self.claim().await;
        let plain = (1..=20).map(|nth| new_start(self.run(nth)));
        let starts = plain.chain([self.keyed(21), self.keyed(22)]).collect();
        world.start(starts).await.unwrap();
        let known = Start { run: self.run(23), ..self.keyed(22) };
        assert!(!world.start(vec![known]).await.unwrap().remove(0).unwrap().is_new);
        // Send to a run that waits for a message, one that has ended, and a new one.
        let waiting_run = self.large.id(self.large.ended + 4 + 10 * self.number as u32);
        let to = [waiting_run, self.large.id(1), self.run(1)];
        let sent = to.iter().zip(1..).map(|(to, nth)| self.message(nth, *to)).collect();
        let sent: Vec<bool> = world.send(sent).await.unwrap().into_iter().map(|sent| sent.is_ok()).collect();
        assert_eq!(sent, [true, false, true]);
        let mut claimed = self.claim().await;
        claimed.extend(self.claim().await);
        claimed.extend(self.claim().await);
        assert!(claimed.len() >= 20, "{}", claimed.len());
        self.commit(&claimed).await;
        world.held(self.session()).await.unwrap();
        world.beat(self.session(), &Report::default(), &[]).await.unwrap();
        world.resume(self.large.id(self.large.ended + 8 + 10 * self.number as u32)).await.unwrap();
    }

    /// Commits turns of every kind.
    async fn commit(&self, claimed: &[Claimed]) {
        let wait = || Then::Wait { wake_at: Some(Timestamp::NEVER), waits: Vec::new() };
        for (nth, claimed) in (100..).zip(claimed) {
            let then = match nth {
                100 | 101 => Then::Hold,
                102..=110 => wait(),
                111 => Then::Release,
                _ => Then::End(Status::Completed),
            };
            let mut turn = one_event_turn(claimed.run, claimed.turn, claimed.seq, self.id(nth), then);
            turn.consumed = claimed.consumed + claimed.inbox.len() as u64;
            turn.fired_until = Some(Timestamp::from_micros(1));
            if matches!(turn.then, Then::End(_)) {
                turn.events = vec![completed()];
            }
            if nth == 101 {
                turn.outbox = Some(Box::new(self.outbox(claimed.run)));
            }
            commit(&self.world, self.session(), turn).await.unwrap();
        }
    }

    fn outbox(&self, parent: RunId) -> Outbox {
        let parent = Some(Parent { run: parent, op: OpNumber(1), root: parent, awaits: true });
        let start = Start { parent, ..self.keyed(50) };
        let children = vec![NewChild { start, notify_parent: true }];
        let waiting_run = self.large.id(self.large.ended + 5 + 10 * self.number as u32);
        Outbox {
            children,
            messages: vec![self.message(60, waiting_run)],
            tags: tags("1"),
            ..Outbox::default()
        }
    }

    async fn read(&self) {
        let (world, large) = (&*self.world, self.large);
        for query in lists(large) {
            assert!(!world.runs(query.clone()).await.unwrap().runs.is_empty(), "{query:?}");
        }
        for query in empty_lists() {
            assert!(world.runs(query).await.unwrap().runs.is_empty());
        }
        world.run(large.id(large.ended / 2)).await.unwrap();
        world.history(large.id(large.ended / 2), 0, 10).await.unwrap();
        world.inbox(large.id(large.ended / 100 * 50), 0).await.unwrap();
        assert!(world.ended(large.id(7), Timestamp::from_micros(0)).await.unwrap().is_some());
        world.counts().await.unwrap();
        world.workers().await.unwrap();
    }

    /// Ends the sessions: a takeover, a leave, and pruning.
    async fn end_sessions(&self) {
        let world = &*self.world;
        let other = SessionId::from_bits(1_000 + self.number);
        join(world, other, Duration::from_millis(1)).await;
        world.start(vec![new_start(self.run(70))]).await.unwrap();
        let claimed = world.claim(other, request()).await.unwrap().claimed;
        assert!(!claimed.is_empty());
        common::wait_until("it is taken over", async || world.takeover(self.session()).await.unwrap() > 0)
            .await;
        world.leave(self.session()).await.unwrap();
        let first = self.number as u32 * 1_000;
        let before = self.large.at(self.large.ended);
        let pruned = world.prune(before, Some(self.large.id(first)), 100).await.unwrap();
        assert_eq!((pruned.runs, pruned.next), (100, Some(self.large.id(first + 100))));
        let none =
            world.prune(Timestamp::from_micros(0), Some(self.large.id(first + 500)), 1_000).await.unwrap();
        assert_eq!(none.runs, 0);
    }
}

fn tags(value: &str) -> Tags {
    [("shop".to_owned(), value.to_owned())].into()
}

/// Lists with every kind of filter.
fn lists(large: LargeSchema) -> Vec<RunQuery> {
    let all = RunQuery { limit: 100, ..RunQuery::default() };
    let status = |statuses: &[Status]| RunQuery { statuses: statuses.into(), ..all.clone() };
    let (parent, middle) = (Some(large.id(0)), Some(large.id(large.ended / 2)));
    let every = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck, Status::Failed];
    let (from, before) = (Some(large.at(large.ended / 2)), Some(large.at(large.ended / 2 + 50_000)));
    vec![
        all.clone(),
        RunQuery { order: ListOrder::OldestFirst, ..all.clone() },
        RunQuery { after: middle, ..all.clone() },
        RunQuery { before: middle, ..all.clone() },
        status(&[Status::Completed]),
        status(&[Status::Failed]),
        status(&[Status::Waiting]),
        status(&[Status::Stuck]),
        RunQuery { order: ListOrder::OldestFirst, ..status(&[Status::Waiting]) },
        status(&every),
        RunQuery { workflow: Some("w".into()), ..all.clone() },
        RunQuery { workflow: Some("w".into()), ..status(&[Status::Cancelled]) },
        RunQuery { tags: tags("10"), ..all.clone() },
        RunQuery { tags: tags("10"), ..status(&[Status::Failed]) },
        RunQuery { parent, ..all.clone() },
        RunQuery { parent, ..status(&[Status::Completed]) },
        RunQuery { root: parent, ..all.clone() },
        RunQuery { key: Some(large.key(700)), ..all.clone() },
        RunQuery { queue: Some("default".into()), ..all.clone() },
        RunQuery { text: Some("W".into()), ..all.clone() },
        RunQuery { created_from: from, created_before: before, ..all.clone() },
        RunQuery { created_from: from, created_before: before, ..status(&[Status::Completed]) },
    ]
}

/// Lists without matching runs, or without any near the beginning: they stop after a number of examined runs.
fn empty_lists() -> Vec<RunQuery> {
    let all = RunQuery { limit: 100, ..RunQuery::default() };
    vec![
        RunQuery { text: Some("nowhere".into()), ..all.clone() },
        RunQuery { queue: Some("nobody's".into()), ..all.clone() },
        RunQuery { workflow: Some("nobody's".into()), ..all.clone() },
        RunQuery { workflow: Some("nobody's".into()), statuses: vec![Status::Completed], ..all.clone() },
        RunQuery { tags: tags("nobody's"), ..all.clone() },
        RunQuery { tags: tags("10"), statuses: vec![Status::Running], ..all.clone() },
        RunQuery { key: Some("nobody's".into()), ..all },
    ]
}

/// The server's log, read in parts.
struct Log {
    file: PathBuf,
    offset: usize,
}

impl Log {
    fn of(server: &throwaway::Postgres) -> Self {
        let files = std::fs::read_dir(server.folder()).unwrap().flatten();
        let mut logs = files.filter(|file| file.file_name().to_string_lossy().contains("log"));
        Self { file: logs.next().unwrap().path(), offset: 0 }
    }

    /// The plans since the last call.
    fn plans(&mut self) -> Vec<Value> {
        let log = std::fs::read(&self.file).unwrap();
        let new = String::from_utf8_lossy(&log[self.offset..]).into_owned();
        self.offset = log.len();
        let parts = new.split(" plan:\n").skip(1);
        let texts =
            parts.map(|part| part.lines().take_while(|line| line.starts_with('\t')).collect::<String>());
        texts.map(|text| serde_json::from_str(&text).unwrap()).collect()
    }

    /// The faults of the plans since the last call, the highest number of pages that a statement read, except for
    /// lists, and the number of plans.
    fn find_faults(&mut self) -> (Vec<String>, u64, usize) {
        let (mut find_faults, mut pages_max) = (Vec::new(), 0);
        let plans = self.plans();
        for plan in &plans {
            let text = plan["Query Text"].as_str().unwrap();
            let is_list = text.contains("LIMIT 1 OFFSET") || text.contains("runs.stuck_build");
            let pages =
                ["Shared Hit Blocks", "Shared Read Blocks"].map(|what| plan["Plan"][what].as_u64().unwrap());
            let pages: u64 = pages.iter().sum();
            let limit = if is_list { PAGES_OF_LIST_MAX } else { PAGES_MAX };
            if pages > limit {
                find_faults.push(format!("{pages} pages: {text}"));
            }
            if !is_list {
                pages_max = pages_max.max(pages);
            }
            visit_nodes(&plan["Plan"], &mut |scan| {
                find_faults.extend(node_fault(scan).map(|node_fault| format!("{node_fault}: {text}")))
            });
        }
        (find_faults, pages_max, plans.len())
    }
}

/// Calls `visit` for every node of a plan.
fn visit_nodes(node: &Value, visit: &mut impl FnMut(&Value)) {
    visit(node);
    for child in node["Plans"].as_array().into_iter().flatten() {
        visit_nodes(child, visit);
    }
}

/// The fault of a node of a plan, if it reads too much.
fn node_fault(node: &Value) -> Option<String> {
    let table = node["Relation Name"].as_str()?;
    if SMALL_TABLES.contains(&table) {
        return None;
    }
    if node["Node Type"] == "Seq Scan" {
        return Some(format!("scans {table} sequentially"));
    }
    let number = |what: &str| node[what].as_f64().unwrap_or(0.0);
    let each =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let rows = each * number("Actual Loops");
    (rows > ROWS_MAX).then(|| format!("reads {rows} rows of {table} by {}", node["Index Name"]))
}

async fn open(test_schema: &TestSchema) -> PostgresWorld {
    let url = format!("{}&options=-c%20auto_explain.log_min_duration%3D0", test_schema.url());
    PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_reads_more_with_more_runs() {
    let server = throwaway::Postgres::builder().quick();
    let server = [
        ("autovacuum", "off"),
        ("shared_buffers", "512MB"),
        ("max_wal_size", "16GB"),
        ("session_preload_libraries", "auto_explain"),
        ("auto_explain.log_nested_statements", "on"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_timing", "off"),
        ("auto_explain.log_buffers", "on"),
        ("auto_explain.log_format", "json"),
    ]
    .iter()
    .fold(server, |server, (name, value)| server.setting(name, value));
    let server = server.start().unwrap();
    let test_schema = TestSchema::on(&server.url(), TestClock::new());
    let large = configured_size();
    // Plans that are made when there are few runs, and kept.
    let early = Arc::new(open(&test_schema).await);
    SMALL.fill(&test_schema).await;
    Workload::new(early.clone(), 1, SMALL).all().await;
    large.fill(&test_schema).await;
    let mut log = Log::of(&server);
    log.plans();
    for (number, name) in [(2, "old plans"), (3, "no statistics"), (4, "statistics")] {
        let world = if number == 2 { early.clone() } else { Arc::new(open(&test_schema).await) };
        if number == 4 {
            let tables =
                ["runs", "turns", "tags", "inbox"].map(|table| format!("{}.{table}", test_schema.schema));
            test_schema
                .connect()
                .await
                .batch_execute(&format!("ANALYZE {}", tables.join(", ")))
                .await
                .unwrap();
        }
        Workload::new(world, number, large).all().await;
        let (find_faults, pages, plans) = log.find_faults();
        eprintln!("{name}: {plans} plans, at most {pages} pages except for lists");
        assert!(plans > 200, "{plans}");
        assert!(find_faults.is_empty(), "{name}: {find_faults:#?}");
    }
}
