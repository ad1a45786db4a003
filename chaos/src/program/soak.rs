//! The soak: mixed load for a long time, and a verdict on what grew.

mod gauge;
mod load;
mod verdict;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{Client, ListOrder, RunQuery, Status, SystemClock, Timestamp, World};

use super::Result;
use super::report::{Folder, seconds};
use super::transfer::pass;
use gauge::{Gauge, Sample};
use load::Load;

/// How often finished runs are forgotten, and how long after their end.
const PRUNE_EVERY: Duration = Duration::from_secs(5);
const KEPT: Duration = Duration::from_secs(20);

/// Runs that one call forgets: few, so that nobody waits long for the writer.
const PRUNED_AT_ONCE: usize = 100;

/// How long a run may be open. The longest sleeps for some seconds, so that one is lost.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// How long the runs that are open at the end may take.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// What to do.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Plan {
    /// For how long
    #[arg(long, default_value_t = 30.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// Seconds from line to line
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) tick: u64,
    /// Where to put the files [default: where temporary files are]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.01..=100_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("give a number from 0.01 to 100000".into()),
    }
}

/// Loads, measures, and judges. An error when something grew.
pub(crate) async fn run(plan: &Plan) -> Result<()> {
    let folder = Folder::new(plan.folder.as_deref())?;
    let place = folder.place();
    let samples = soak(plan, outlast::open(&place.url()).await?, &Gauge::new(&place)).await;
    let repeat = format!("cargo xtask soak --minutes {} --tick {}", plan.minutes, plan.tick);
    let samples = folder.close(samples, &repeat)?;
    verdict::judge(&samples)
}

async fn soak(plan: &Plan, world: Arc<dyn World>, gauge: &Gauge) -> Result<Vec<Sample>> {
    let worker = load::worker(world.clone()).start().await?;
    let client = Client::new(world.clone());
    let load = Load::begin(&client);
    let time = Duration::from_secs_f64(plan.minutes * 60.0);
    let tick = Duration::from_secs(plan.tick);
    let began = SystemClock.now();
    let mut pruner = Pruner { world, due: began.plus(PRUNE_EVERY), pruned: 0 };
    let (mut samples, mut next) = (Vec::new(), began.plus(tick));
    println!("{}", Sample::HEAD);
    while SystemClock.now() < began.plus(time) {
        pass(Duration::from_millis(50)).await;
        load.check()?;
        pruner.prune().await?;
        if SystemClock.now() >= next {
            check_nothing_lost(&client).await?;
            let now = SystemClock.now();
            let times = load.take_times();
            let sample =
                gauge.sample(now.since(began), now.since(next) + tick, times, &client, pruner.pruned).await?;
            println!("{sample}");
            samples.push(sample);
            next = next.plus(tick);
        }
    }
    let runs = load.end(DRAIN_MAX).await?;
    worker.stop().await?;
    check_nothing_open(&client).await?;
    println!(
        "{runs} runs in {}, all ended; {} pruned",
        seconds(SystemClock.now().since(began)),
        pruner.pruned
    );
    Ok(samples)
}

/// Fails when a run has been open for too long.
async fn check_nothing_lost(client: &Client) -> Result<()> {
    let statuses = Status::ALL.into_iter().filter(|status| !status.is_final()).collect();
    let query = RunQuery { statuses, order: ListOrder::OldestFirst, limit: 1, ..RunQuery::default() };
    let page = client.runs(query).await?;
    let Some(oldest) = page.runs.first() else { return Ok(()) };
    let age = SystemClock.now().since(oldest.created_at);
    if age < OPEN_MAX {
        return Ok(());
    }
    Err(format!("a run has been open for {}: {oldest:#?}", seconds(age)).into())
}

async fn check_nothing_open(client: &Client) -> Result<()> {
    let counts = client.counts().await?;
    let open: Vec<(Status, u64)> =
        counts.into_iter().filter(|(s, count)| !s.is_final() && *count > 0).collect();
    if open.is_empty() { Ok(()) } else { Err(format!("all runs have ended, but counts say {open:?}").into()) }
}

/// Forgets finished runs as it goes.
struct Pruner {
    world: Arc<dyn World>,
    due: Timestamp,
    pruned: u64,
}

impl Pruner {
    async fn prune(&mut self) -> Result<()> {
        if SystemClock.now() < self.due {
            return Ok(());
        }
        self.due = SystemClock.now().plus(PRUNE_EVERY);
        let before = Timestamp::from_micros(SystemClock.now().as_micros() - KEPT.as_micros() as i64);
        let mut after = None;
        loop {
            let done = self.world.prune(before, after, PRUNED_AT_ONCE).await?;
            self.pruned += done.runs;
            // What was started after that moment has not ended before it.
            if done.next.is_none() || done.runs == 0 {
                return Ok(());
            }
            after = done.next;
        }
    }
}
