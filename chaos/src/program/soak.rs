//! The soak test: mixed load for a long time, and a check of resources that must not grow.

mod growth;
mod load;
mod sampler;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{Client, ListOrder, RunQuery, Status, SystemClock, Timestamp, World};

use super::Result;
use super::report::{TempFolder, seconds};
use super::transfer::sleep;
use load::Load;
use sampler::{Sample, Sampler};

/// The interval of pruning, and the age at which ended runs are pruned.
const PRUNE_EVERY: Duration = Duration::from_secs(5);
const PRUNE_AFTER: Duration = Duration::from_secs(20);

/// The limit of runs that one call prunes: low, so that it blocks the writer only briefly.
const PRUNED_AT_ONCE: usize = 100;

/// How long a run may be open. The longest sleep takes a few seconds, so an older run is lost.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// How long the open runs may take at the end.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// The options of this task.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct SoakOptions {
    /// The duration in minutes
    #[arg(long, default_value_t = 30.0, value_parser = minutes)]
    pub(crate) minutes: f64,
    /// The seconds between two lines
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) tick: u64,
    /// The folder for the files [default: the folder for temporary files]
    #[arg(long, value_name = "PATH")]
    pub(crate) folder: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if (0.01..=100_000.0).contains(&minutes) => Ok(minutes),
        _ => Err("give a number from 0.01 to 100000".into()),
    }
}

/// Runs the load, prints measurements, and fails when a resource grew.
pub(crate) async fn run(options: &SoakOptions) -> Result<()> {
    let folder = TempFolder::new(options.folder.as_deref())?;
    let workdir = folder.workdir();
    let samples = soak(options, outlast::open(&workdir.url()).await?, &Sampler::new(&workdir)).await;
    let repeat = format!("cargo xtask soak --minutes {} --tick {}", options.minutes, options.tick);
    let samples = folder.close(samples, &repeat)?;
    growth::check_growth(&samples)
}

async fn soak(options: &SoakOptions, world: Arc<dyn World>, sampler: &Sampler) -> Result<Vec<Sample>> {
    let worker = load::worker(world.clone()).start().await?;
    let client = Client::new(world.clone());
    let load = Load::begin(&client);
    let time = Duration::from_secs_f64(options.minutes * 60.0);
    let tick = Duration::from_secs(options.tick);
    let began = SystemClock.now();
    let mut pruner = Pruner { world, due: began.plus(PRUNE_EVERY), pruned: 0 };
    let (mut samples, mut next) = (Vec::new(), began.plus(tick));
    println!("{}", Sample::HEAD);
    while SystemClock.now() < began.plus(time) {
        sleep(Duration::from_millis(50)).await;
        load.check()?;
        pruner.prune().await?;
        if SystemClock.now() >= next {
            check_oldest_open(&client).await?;
            let now = SystemClock.now();
            let times = load.take_times();
            let sample = sampler
                .sample(now.since(began), now.since(next) + tick, times, &client, pruner.pruned)
                .await?;
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
async fn check_oldest_open(client: &Client) -> Result<()> {
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

/// Prunes ended runs regularly.
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
        let before = Timestamp::from_micros(SystemClock.now().as_micros() - PRUNE_AFTER.as_micros() as i64);
        let mut after = None;
        loop {
            let done = self.world.prune(before, after, PRUNED_AT_ONCE).await?;
            self.pruned += done.runs;
            // Runs that started after that time cannot have ended before it.
            if done.next.is_none() || done.runs == 0 {
                return Ok(());
            }
            after = done.next;
        }
    }
}
