//! B10, lists at size: claims, lists and counts with a million finished and a hundred thousand waiting runs.

use std::sync::Arc;
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::{default_queue, default_queues};
use outlast::core::{ClaimRequest, Clock, Code, Join, SessionId, Start, SuspectRoom, TurnId};
use outlast::prelude::*;
use outlast::{Headers, ListOrder, Payload, RunId, RunQuery, Status, SystemClock, Tags, Timestamp, World};

use super::large_world::{LargeWorld, TAG};
use super::{Measurement, Row, Target, Workload};
use crate::Result;
use crate::environment::{Environment, WorldKind, block_on};
use crate::stats::median;
use crate::stopwatch::Stopwatch;

const FINISHED: usize = 1_000_000;
const WAITING: usize = 100_000;

/// Runs of a page.
const PAGE: usize = 100;

/// Pages of each sort; the median counts.
const PAGES: usize = 11;

/// Claims, and the runs of each.
const CLAIMS: usize = 30;
const RUNS_PER_CLAIM: usize = 100;

/// The cost of a claim, of the slowest sort of list, and of the counts.
pub(super) const WORKLOAD: Workload = Workload {
    id: "B10",
    name: "lists-at-size",
    what: "claims, lists and counts in a world with 1,000,000 finished and 100,000 waiting runs",
    worlds: &[WorldKind::Sqlite, WorldKind::Postgres],
    rows: &[
        Row {
            id: "B10 claim",
            what: "a claim of 100 runs among 1,100,000; x empty",
            unit: "ms",
            target: Target::AtMost(1.3).everywhere(),
        },
        Row {
            id: "B10 list",
            what: "a page of 100 of them, slowest of 13 sorts",
            unit: "ms",
            target: Target::AtMost(10.0).but_on_postgres(Target::Unlimited),
        },
        Row {
            id: "B10 counts",
            what: "the counts by status",
            unit: "ms",
            target: Target::AtMost(10.0).but_on_postgres(Target::Unlimited),
        },
    ],
    run,
};

fn run(env: &Environment) -> Result<Vec<Measurement>> {
    let full = LargeWorld::make(env, FINISHED, WAITING)?;
    let empty_ms = block_on(async { claim_ms(env.open().await?).await })?;
    block_on(async {
        let world = outlast::open(&full.url).await?;
        let big_ms = claim_ms(world.clone()).await?;
        let client = Client::new(world);
        let mut slowest: f64 = 0.0;
        let mut faults = Vec::new();
        for (name, query, runs) in lists(&full) {
            let (ms, found) = page_ms(&client, query).await?;
            eprint!("  {name} {ms:.2} ms");
            slowest = slowest.max(ms);
            if found != runs {
                faults.push(format!("the list `{name}` had {found} runs on its page, not {runs}"));
            }
        }
        let mut counts = Vec::with_capacity(PAGES);
        for _ in 0..PAGES {
            let watch = Stopwatch::start();
            client.counts().await?;
            counts.push(watch.seconds() * 1e3);
        }
        Ok(vec![
            Measurement::relative(big_ms, big_ms / empty_ms),
            Measurement { faults, ..Measurement::absolute(slowest) },
            Measurement::absolute(median(&counts)),
        ])
    })
}

/// Every sort of list, with the number of runs that its page should have.
fn lists(full: &LargeWorld) -> Vec<(&'static str, RunQuery, usize)> {
    let shape = &full.shape;
    let all = RunQuery { limit: PAGE, ..RunQuery::default() };
    let middle = FINISHED / 2;
    let status = |status| RunQuery { statuses: vec![status], ..all.clone() };
    let text = |text: &str| RunQuery { text: Some(text.into()), ..all.clone() };
    let tags: Tags = [(TAG.0.to_owned(), TAG.1.to_owned())].into();
    let range = RunQuery {
        created_from: Some(shape.at(middle)),
        created_before: Some(shape.at(middle + 10_000)),
        ..all.clone()
    };
    vec![
        ("newest", all.clone(), PAGE),
        ("oldest", RunQuery { order: ListOrder::OldestFirst, ..all.clone() }, PAGE),
        ("deep", RunQuery { after: Some(shape.id(middle)), ..all.clone() }, PAGE),
        ("back", RunQuery { before: Some(shape.id(middle)), ..all.clone() }, PAGE),
        ("completed", status(Status::Completed), PAGE),
        ("waiting", status(Status::Waiting), PAGE),
        ("workflow", RunQuery { workflow: Some("count".into()), ..all.clone() }, PAGE),
        ("tag", RunQuery { tags, ..all.clone() }, PAGE),
        ("parent", RunQuery { parent: Some(full.parent), ..all.clone() }, PAGE),
        ("range", range.clone(), PAGE),
        ("range of a workflow", RunQuery { workflow: Some("count".into()), ..range }, PAGE),
        ("text", text("sleep"), PAGE),
        ("text that is nowhere", text("nowhere"), 0),
    ]
}

/// The time of a page in milliseconds, and how many runs it had.
async fn page_ms(client: &Client, query: RunQuery) -> Result<(f64, usize)> {
    let (mut pages, mut runs) = (Vec::with_capacity(PAGES), 0);
    for _ in 0..PAGES {
        let watch = Stopwatch::start();
        runs = client.runs(query.clone()).await?.runs.len();
        pages.push(watch.seconds() * 1e3);
    }
    Ok((median(&pages), runs))
}

/// The time of a claim in milliseconds.
async fn claim_ms(world: Arc<dyn World>) -> Result<f64> {
    let now = SystemClock.now();
    let code: Arc<[Code]> =
        ["count", "sleep"].map(|workflow| Code { workflow: workflow.into(), version: 1 }).into();
    let session = SessionId::from_bits(now.as_micros() as u128);
    let (build, time): (Arc<str>, _) = ("bench".into(), Duration::from_secs(60));
    let (host, queues) = ("bench".into(), default_queues());
    let join = Join {
        session,
        host,
        pid: 0,
        build: build.clone(),
        code: code.clone(),
        queues,
        time,
        rules: RULES,
        format: FORMAT,
    };
    world.join(join).await?;
    for claim in 0..CLAIMS {
        let starts = (0..RUNS_PER_CLAIM).map(|run| start(now, claim * RUNS_PER_CLAIM + run));
        for started in world.start(starts.collect()).await? {
            started?;
        }
    }
    let mut claims = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        let request = ClaimRequest {
            limit: RUNS_PER_CLAIM,
            code: code.clone(),
            queues: default_queues(),
            build: build.clone(),
            format: FORMAT,
            suspects: SuspectRoom::AnyClass { room: RUNS_PER_CLAIM },
            ends_overdue_from: Timestamp::NEVER,
        };
        let watch = Stopwatch::start();
        let claimed = world.claim(session, request).await?.claimed.len();
        claims.push(watch.seconds() * 1e3);
        if claimed != RUNS_PER_CLAIM {
            return Err(format!("a claim of {RUNS_PER_CLAIM} runs brought {claimed}").into());
        }
    }
    world.leave(session).await?;
    Ok(median(&claims))
}

fn start(now: Timestamp, number: usize) -> Start {
    let bits = ((now.as_micros() as u128 / 1_000) << 80) | (1 << 60) | number as u128;
    Start {
        run: RunId::from_bits(bits),
        turn: TurnId::from_bits(bits),
        workflow: "count".into(),
        version: 1,
        rules: outlast::core::event::RULES,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
    }
}
