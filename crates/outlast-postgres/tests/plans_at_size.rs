//! What each statement touches where there are 1,000,000 runs that ended and 100,000 that wait: no more than
//! where there are few. The server writes down every plan that it runs, those inside functions included, with the
//! rows and the pages that it touched. Looked at with plans that were made when there was little, with plans that
//! are made now without statistics, and with statistics.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::big::Big;
use common::{LONG, Place, commit, completed, join, new_start, request, step};
use outlast_core::{
    ClaimRequest, Claimed, Code, Headers, ListOrder, MessageBody, MessageId, NewChild, NewMessage, OpNumber,
    Outbox, Parent, Report, RunId, RunQuery, SessionId, Start, StartKey, Status, Tags, Then, Timestamp,
    World,
};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use serde_json::Value;

/// The full size; `OUTLAST_PLANS_PART=10` makes it a tenth.
const FULL: Big = Big { from: 0, ended: 1_000_000, waiting: 100_000 };

/// What is there when the first plans are made.
const SMALL: Big = Big { from: 2_100_000, ended: 10_000, waiting: 1_000 };

/// Tables that stay small, so that reading all of one is no harm.
const SMALL_TABLES: [&str; 7] =
    ["sessions", "counts", "skew", "unmerged", "leftovers", "settings", "migrations"];

/// Rows that one part of a statement looks at. A page of runs looks at 5,000 at the most.
const ROWS_MAX: f64 = 6_000.0;

/// Pages that a statement touches; a page of runs that is filtered by a text looks at 5,000 with their tags.
const PAGES_MAX: u64 = 2_500;
const PAGES_OF_LIST_MAX: u64 = 40_000;

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// The size that was asked for.
fn size() -> Big {
    let part = std::env::var("OUTLAST_PLANS_PART").map_or(1, |part| part.parse().unwrap());
    Big { ended: FULL.ended / part, waiting: FULL.waiting / part, ..FULL }
}

/// One session's work; every round has numbers of its own.
struct Round {
    world: Arc<PostgresWorld>,
    number: u128,
    big: Big,
    /// When it began.
    millis: u64,
}

impl Round {
    fn new(world: Arc<PostgresWorld>, number: u128, big: Big) -> Self {
        let millis = world.clock().now().as_micros() as u64 / 1_000;
        Self { world, number, big, millis }
    }

    fn id(&self, nth: u128) -> u128 {
        // Behind the others: they are started now.
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
        let key = Some(StartKey { text: format!("round {} {nth}", self.number), digest: 1, window: None });
        Start { key, ..new_start(self.run(nth)) }
    }

    /// A claim of a worker that has the code of very much.
    async fn claim(&self) -> Vec<Claimed> {
        let names = (0..200).flat_map(|nth| [format!("flow {nth}"), format!("step:{nth}")]);
        let code = names.chain(["w".to_owned()]).map(|name| Code { workflow: name.into(), version: 1 });
        let queues = ["default", "a", "b", "c", "d"].map(Into::into).into();
        let ends_overdue_from = Timestamp::from_micros(0);
        let asks = ClaimRequest { code: code.collect(), queues, ends_overdue_from, ..request() };
        self.world.claim(self.session(), asks).await.unwrap().claimed
    }

    async fn all(&self) {
        self.work().await;
        self.look().await;
        self.end().await;
    }

    async fn work(&self) {
        let world = &*self.world;
        join(world, self.session(), LONG).await;
        self.claim().await;
        let plain = (1..=20).map(|nth| new_start(self.run(nth)));
        let starts = plain.chain([self.keyed(21), self.keyed(22)]).collect();
        world.start(starts).await.unwrap();
        let known = Start { run: self.run(23), ..self.keyed(22) };
        assert!(!world.start(vec![known]).await.unwrap().remove(0).unwrap().is_new);
        // To one that waits for a message, one that ended, and one that is new.
        let asleep = self.big.id(self.big.ended + 4 + 10 * self.number as u32);
        let to = [asleep, self.big.id(1), self.run(1)];
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
        world.resume(self.big.id(self.big.ended + 8 + 10 * self.number as u32)).await.unwrap();
    }

    /// Turns of every kind.
    async fn commit(&self, claimed: &[Claimed]) {
        let wait = || Then::Wait { wake_at: Some(Timestamp::NEVER), waits: Vec::new() };
        for (nth, claimed) in (100..).zip(claimed) {
            let then = match nth {
                100 | 101 => Then::Hold,
                102..=110 => wait(),
                111 => Then::Release,
                _ => Then::End(Status::Completed),
            };
            let mut turn = step(claimed.run, claimed.turn, claimed.seq, self.id(nth), then);
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
        let children = vec![NewChild { start, wants_answer: true }];
        let asleep = self.big.id(self.big.ended + 5 + 10 * self.number as u32);
        Outbox { children, messages: vec![self.message(60, asleep)], tags: tags("1") }
    }

    async fn look(&self) {
        let (world, big) = (&*self.world, self.big);
        for query in lists(big) {
            assert!(!world.runs(query.clone()).await.unwrap().runs.is_empty(), "{query:?}");
        }
        for query in lists_of_nothing() {
            assert!(world.runs(query).await.unwrap().runs.is_empty());
        }
        world.run(big.id(big.ended / 2)).await.unwrap();
        world.history(big.id(big.ended / 2), 0, 10).await.unwrap();
        world.inbox(big.id(big.ended / 100 * 50), 0).await.unwrap();
        assert!(world.ended(big.id(7), Timestamp::from_micros(0)).await.unwrap().is_some());
        world.counts().await.unwrap();
        world.workers().await.unwrap();
    }

    /// Another session takes over, forgets what is old, and leaves.
    async fn end(&self) {
        let world = &*self.world;
        let other = SessionId::from_bits(1_000 + self.number);
        join(world, other, Duration::from_millis(1)).await;
        world.start(vec![new_start(self.run(70))]).await.unwrap();
        let claimed = world.claim(other, request()).await.unwrap().claimed;
        assert!(!claimed.is_empty());
        common::until("it is taken over", async || world.takeover(self.session()).await.unwrap() > 0).await;
        world.leave(self.session()).await.unwrap();
        let first = self.number as u32 * 1_000;
        let before = self.big.at(self.big.ended);
        let pruned = world.prune(before, Some(self.big.id(first)), 100).await.unwrap();
        assert_eq!((pruned.runs, pruned.next), (100, Some(self.big.id(first + 100))));
        let none =
            world.prune(Timestamp::from_micros(0), Some(self.big.id(first + 500)), 1_000).await.unwrap();
        assert_eq!(none.runs, 0);
    }
}

fn tags(value: &str) -> Tags {
    [("shop".to_owned(), value.to_owned())].into()
}

/// Lists by everything that they can be filtered by.
fn lists(big: Big) -> Vec<RunQuery> {
    let all = RunQuery { limit: 100, ..RunQuery::default() };
    let status = |statuses: &[Status]| RunQuery { statuses: statuses.into(), ..all.clone() };
    let (parent, middle) = (Some(big.id(0)), Some(big.id(big.ended / 2)));
    let every = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck, Status::Failed];
    let (from, before) = (Some(big.at(big.ended / 2)), Some(big.at(big.ended / 2 + 50_000)));
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
        RunQuery { key: Some(big.key(700)), ..all.clone() },
        RunQuery { queue: Some("default".into()), ..all.clone() },
        RunQuery { text: Some("W".into()), ..all.clone() },
        RunQuery { created_from: from, created_before: before, ..all.clone() },
        RunQuery { created_from: from, created_before: before, ..status(&[Status::Completed]) },
    ]
}

/// Lists that have nothing, or nothing near: they end after so many looks.
fn lists_of_nothing() -> Vec<RunQuery> {
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

/// What the server writes down, part by part.
struct Log {
    file: PathBuf,
    read: usize,
}

impl Log {
    fn of(server: &throwaway::Postgres) -> Self {
        let files = std::fs::read_dir(server.folder()).unwrap().flatten();
        let mut logs = files.filter(|file| file.file_name().to_string_lossy().contains("log"));
        Self { file: logs.next().unwrap().path(), read: 0 }
    }

    /// The plans since the last look.
    fn plans(&mut self) -> Vec<Value> {
        let log = std::fs::read(&self.file).unwrap();
        let new = String::from_utf8_lossy(&log[self.read..]).into_owned();
        self.read = log.len();
        let parts = new.split(" plan:\n").skip(1);
        let texts =
            parts.map(|part| part.lines().take_while(|line| line.starts_with('\t')).collect::<String>());
        texts.map(|text| serde_json::from_str(&text).unwrap()).collect()
    }

    /// What is wrong with the plans since the last look, and the most pages that a statement touched.
    fn faults(&mut self) -> (Vec<String>, u64, usize) {
        let (mut faults, mut pages_max) = (Vec::new(), 0);
        let plans = self.plans();
        for plan in &plans {
            let text = plan["Query Text"].as_str().unwrap();
            let is_list = text.contains("LIMIT 1 OFFSET") || text.contains("runs.stuck_build");
            let pages =
                ["Shared Hit Blocks", "Shared Read Blocks"].map(|what| plan["Plan"][what].as_u64().unwrap());
            let pages: u64 = pages.iter().sum();
            let limit = if is_list { PAGES_OF_LIST_MAX } else { PAGES_MAX };
            if pages > limit {
                faults.push(format!("{pages} pages: {text}"));
            }
            if !is_list {
                pages_max = pages_max.max(pages);
            }
            scans(&plan["Plan"], &mut |scan| {
                faults.extend(fault(scan).map(|fault| format!("{fault}: {text}")))
            });
        }
        (faults, pages_max, plans.len())
    }
}

/// Shows every node of a plan.
fn scans(node: &Value, see: &mut impl FnMut(&Value)) {
    see(node);
    for child in node["Plans"].as_array().into_iter().flatten() {
        scans(child, see);
    }
}

/// What is wrong with a node of a plan.
fn fault(node: &Value) -> Option<String> {
    let table = node["Relation Name"].as_str()?;
    if SMALL_TABLES.contains(&table) {
        return None;
    }
    if node["Node Type"] == "Seq Scan" {
        return Some(format!("reads all of {table}"));
    }
    let number = |what: &str| node[what].as_f64().unwrap_or(0.0);
    let each =
        number("Actual Rows") + number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
    let rows = each * number("Actual Loops");
    (rows > ROWS_MAX).then(|| format!("looks at {rows} rows of {table} by {}", node["Index Name"]))
}

async fn open(place: &Place) -> PostgresWorld {
    let url = format!("{}&options=-c%20auto_explain.log_min_duration%3D0", place.url());
    PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_with_the_number_of_runs() {
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
    let place = Place::on(&server.url(), TestClock::new());
    let big = size();
    // Plans that are made when there is little, and kept.
    let early = Arc::new(open(&place).await);
    SMALL.fill(&place).await;
    Round::new(early.clone(), 1, SMALL).all().await;
    big.fill(&place).await;
    let mut log = Log::of(&server);
    log.plans();
    for (number, name) in [(2, "old plans"), (3, "no statistics"), (4, "statistics")] {
        let world = if number == 2 { early.clone() } else { Arc::new(open(&place).await) };
        if number == 4 {
            let tables = ["runs", "turns", "tags", "inbox"].map(|table| format!("{}.{table}", place.schema));
            place.connect().await.batch_execute(&format!("ANALYZE {}", tables.join(", "))).await.unwrap();
        }
        Round::new(world, number, big).all().await;
        let (faults, pages, plans) = log.faults();
        eprintln!("{name}: {plans} plans, at the most {pages} pages but for lists");
        assert!(plans > 200, "{plans}");
        assert!(faults.is_empty(), "{name}: {faults:#?}");
    }
}
