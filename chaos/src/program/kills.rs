//! The kill loop: workers are killed and frozen repeatedly, and nothing is lost or duplicated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outlast::core::Clock;
use outlast::{SystemClock, Timestamp};

use super::Result;
use super::audit::{self, Audit, WorkerLosses};
use super::booking;
use super::load_client::LoadClient;
use super::report::{Checks, TempFolder, print_table, seconds};
use super::server::Server;
use super::snapshot::WorldSnapshot;
use super::takeover_scanner::TakeoverScanner;
use super::transfer::sleep;
use super::upgrade::{BuildShare, BuildShares, OldBuild, OldClient, check_shares, has_begun, old_build};
use super::workdir::{LogFiles, ProcessEvent, Workdir, WorldKind};
use super::worker_pool::{KillCounts, WORKERS, WorkerPool};
use super::worker_process::retry_while_unavailable;

/// The interval at which the workers and the runs are checked.
const TICK: Duration = Duration::from_millis(5);

/// How long the loop may take: a time per kill and per restart, and a time for the rest.
const TIMEOUT_PER_KILL: Duration = Duration::from_secs(3);
const TIMEOUT_PER_RESTART: Duration = Duration::from_secs(10);
const TIMEOUT_AT_END: Duration = Duration::from_secs(90);

/// How long only old workers run after a rollback, under load.
const ROLLBACK_TIME: Duration = Duration::from_secs(3);

/// How often, and at which interval, the tables and the schedule are created while a server may be restarting.
const PREPARATIONS_MAX: u32 = 40;
const PREPARATION_PAUSE: Duration = Duration::from_millis(500);

/// The options of this task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KillLoopOptions {
    pub(crate) world: WorldKind,
    pub(crate) kills: u32,
    /// The number of restarts of the server, if the world has one.
    pub(crate) restarts: u32,
    pub(crate) seed: u64,
    pub(crate) folder: Option<PathBuf>,
    /// The program of an older build, whose workers also run.
    pub(crate) old: Option<PathBuf>,
}

/// Runs the loop, checks the result, and prints a table.
pub(crate) async fn run(options: &KillLoopOptions) -> Result<()> {
    let KillLoopOptions { world, kills, restarts, seed, folder, old } = options;
    let (what, mut repeat) = match world {
        WorldKind::Sqlite => ("one SQLite file".to_owned(), format!("--world sqlite --kills {kills}")),
        WorldKind::Postgres => (
            format!("one Postgres, which is restarted {restarts} times"),
            format!("--world postgres --kills {kills} --restarts {restarts}"),
        ),
    };
    match old {
        None => eprintln!("{kills} kills of {WORKERS} workers on {what}, seed {seed}"),
        Some(old) => {
            eprintln!("{kills} kills of workers of two builds on {what}, seed {seed}");
            repeat.push_str(&format!(" --old {}", old.display()));
        }
    }
    let above = folder.as_deref();
    let folder = TempFolder::new(above)?;
    let mut server = match world {
        WorldKind::Sqlite => None,
        WorldKind::Postgres => Some(Server::start(above, *kills, *restarts, *seed)?),
    };
    let workdir = server.as_ref().map_or(folder.workdir(), |server| server.workdir(folder.path()));
    let done = KillLoop::run(workdir, server.as_mut(), options).await;
    if done.is_err()
        && let Some(server) = server
    {
        server.save(folder.path());
    }
    folder.close(done, &format!("cargo xtask chaos {repeat} --seed {seed}"))
}

struct KillLoop<'a> {
    workdir: Workdir,
    logs: Arc<LogFiles>,
    load_client: LoadClient,
    /// A client of the older build, if there is one.
    old_client: Option<OldClient>,
    worker_pool: WorkerPool,
    server: Option<&'a mut Server>,
    began: Timestamp,
    until: Timestamp,
}

/// The result of a loop with an older build.
struct UpgradeResult {
    old_build: OldBuild,
    old_transfers: u64,
    /// The runs that the old build could not finish.
    left_for_new: usize,
}

impl<'a> KillLoop<'a> {
    async fn run(
        workdir: Workdir,
        mut server: Option<&'a mut Server>,
        options: &KillLoopOptions,
    ) -> Result<()> {
        let KillLoopOptions { kills, restarts, seed, .. } = *options;
        let began = SystemClock.now();
        let timeout = TIMEOUT_PER_KILL * kills + TIMEOUT_PER_RESTART * restarts + TIMEOUT_AT_END;
        let until = began.plus(timeout);
        let logs = Arc::new(workdir.open(|_| None)?);
        let mut load_client = None;
        if options.old.is_none() {
            load_client = Some(open_load_client(&workdir, &logs, options).await?);
        }
        let mut worker_pool = WorkerPool::start(&workdir, logs.clone(), seed, kills, options.old.clone())?;
        let mut old_client = match &options.old {
            Some(old) => Some(OldClient::start(old, &workdir, seed, restarts > 0)?),
            None => None,
        };
        // This process must not open the world earlier, because it would migrate the schema.
        while let Some(client) = &mut old_client
            && !(worker_pool.kill_counts()?.kills >= WorkerPool::old_only_kills(kills)
                && has_begun(&workdir)?)
        {
            client.check()?;
            if let Some(server) = &mut server {
                server.tick(&worker_pool.kill_counts()?, &logs)?;
            }
            if SystemClock.now() >= until {
                return Err("the old build did not end enough runs in time".into());
            }
            sleep(TICK).await;
        }
        let load_client = match load_client {
            Some(load_client) => load_client,
            None => open_load_client(&workdir, &logs, options).await?,
        };
        let mut this = Self { workdir, logs, load_client, old_client, worker_pool, server, began, until };
        this.run_with_kills(kills).await?;
        let upgrade = match this.roll_back().await? {
            None => None,
            Some(old_build) => {
                let left_for_new = this.upgrade_again(&old_build).await?;
                let old_transfers = this.finish_old_client().await?;
                Some(UpgradeResult { old_build, old_transfers, left_for_new })
            }
        };
        this.finish_runs().await?;
        this.check_and_print(seed, upgrade).await
    }

    /// Runs the load until all kills and restarts are done.
    async fn run_with_kills(&mut self, kills: u32) -> Result<()> {
        let mut printed = 0;
        let mut takeover_scanner: Option<TakeoverScanner> = None;
        loop {
            let kill_counts = self.worker_pool.kill_counts()?;
            if let Some(server) = &mut self.server {
                server.tick(&kill_counts, &self.logs)?;
            }
            if kill_counts.is_done && self.server.as_ref().is_none_or(|server| server.is_done()) {
                return match takeover_scanner {
                    Some(takeover_scanner) => takeover_scanner.stop().await,
                    None => Ok(()),
                };
            }
            if kill_counts.is_done && self.server.is_some() && takeover_scanner.is_none() {
                takeover_scanner = Some(TakeoverScanner::start(&self.workdir.url()).await?);
            }
            if let Some(client) = &mut self.old_client {
                client.check()?;
            }
            let open = self.load_client.tick().await?;
            if kill_counts.kills >= printed + 20 {
                printed = kill_counts.kills;
                eprintln!(
                    "  {} of {kills} kills, {} freezes, {} transfers, {open} runs open, {}",
                    kill_counts.kills,
                    kill_counts.freezes,
                    self.load_client.transfers(),
                    seconds(SystemClock.now().since(self.began))
                );
            }
            self.wait("the kills").await?;
        }
    }

    /// Stops the workers of the new build, and continues with old ones alone for a while. Returns their build; `None`
    /// if there is only one build.
    async fn roll_back(&mut self) -> Result<Option<OldBuild>> {
        if self.old_client.is_none() {
            return Ok(None);
        }
        self.load_client.stop_using_new_code();
        self.worker_pool.roll_back()?;
        // A worker that was just started may not have joined yet.
        while self.worker_pool.kill_counts()?.new_workers > 0
            || self.load_client.client().workers().await?.len() != self.worker_pool.size()
        {
            self.continue_load("the end of the new workers").await?;
        }
        let old_build = old_build(self.load_client.client(), &mut Checks::default()).await?;
        let until = SystemClock.now().plus(ROLLBACK_TIME);
        while SystemClock.now() < until {
            self.continue_load("old workers").await?;
        }
        Ok(Some(old_build))
    }

    /// Waits until the old workers have finished every run that they can, and starts new workers for the others. Returns
    /// how many these are.
    async fn upgrade_again(&mut self, old_build: &OldBuild) -> Result<usize> {
        if let Some(client) = &mut self.old_client {
            client.close();
        }
        loop {
            self.load_client.answer_runs().await?;
            if let Ok(open) = self.load_client.open_runs().await
                && !open.iter().any(|view| old_build.can_finish(view))
            {
                self.worker_pool.upgrade_again()?;
                return Ok(open.len());
            }
            self.worker_pool.kill_counts()?;
            self.wait("the runs that the old build can read").await?;
        }
    }

    /// Continues the load for one interval.
    async fn continue_load(&mut self, what: &str) -> Result<()> {
        self.worker_pool.kill_counts()?;
        self.load_client.tick().await?;
        self.wait(what).await
    }

    /// Waits until the runs of the old client have ended. Returns how many transfers it started.
    async fn finish_old_client(&mut self) -> Result<u64> {
        let mut old_transfers = 0;
        while let Some(client) = &mut self.old_client {
            if let Some(transfers) = client.ended()? {
                (self.old_client, old_transfers) = (None, transfers);
            }
            self.load_client.answer_runs().await?;
            self.worker_pool.kill_counts()?;
            self.wait("the end of the old client's runs").await?;
        }
        Ok(old_transfers)
    }

    /// Waits until all runs have ended and all sessions of dead workers were taken over.
    async fn finish_runs(&mut self) -> Result<()> {
        while !booking::end_schedule(self.load_client.client()).await? {
            self.wait("the end of the schedule").await?;
        }
        while self.load_client.answer_runs().await? > 0 {
            self.worker_pool.kill_counts()?;
            self.wait("the end of all runs").await?;
        }
        while self.load_client.client().workers().await?.len() != self.worker_pool.size() {
            self.wait("the takeover of dead sessions").await?;
        }
        Ok(())
    }

    async fn wait(&self, what: &str) -> Result<()> {
        if SystemClock.now() < self.until {
            sleep(TICK).await;
            return Ok(());
        }
        let open = self.load_client.open_runs().await?;
        let lines = open.iter().take(20).map(|view| {
            let key = view.key.as_deref().unwrap_or("without a key");
            format!(
                "\n    {} {key}: {}, held by {:?}, waits for {:?}",
                view.id, view.status, view.owner, view.waits
            )
        });
        let time = seconds(self.until.since(self.began));
        Err(format!("waited {time} for {what}; {} runs are open:{}", open.len(), lines.collect::<String>())
            .into())
    }

    async fn check_and_print(self, seed: u64, upgrade: Option<UpgradeResult>) -> Result<()> {
        let kill_counts = self.worker_pool.stop()?;
        let time = SystemClock.now().since(self.began);
        let process_events = self.workdir.process_events()?;
        let mut checks = Checks::default();
        let worker_losses = WorkerLosses::of(&process_events);
        if self.workdir.world() == WorldKind::Postgres {
            audit::check_session_losses(&process_events, self.workdir.world().session(), &mut checks)?;
        }
        let audit =
            audit::check_end(&self.workdir, self.load_client.client(), seed, &worker_losses, &mut checks)
                .await?;
        audit.bookings.check_complete(&mut checks)?;
        let mut rows = Vec::new();
        if let Some(UpgradeResult { old_build, old_transfers, left_for_new }) = upgrade {
            let snapshot = WorldSnapshot::take(self.load_client.client(), &mut checks).await?;
            let shares = check_shares(&snapshot, &old_build, &mut checks)?;
            let BuildShares { old, new, both, newest_format } = shares;
            let share = |share: BuildShare| format!("{} runs ended, {} turns", share.ended, share.turns);
            rows.push(("old build", format!("{}; {old_transfers} transfers by its client", share(old))));
            rows.push(("new build", format!("{}; {both} runs by both builds", share(new))));
            let newest =
                format!("{newest_format} runs; {left_for_new} runs left for the new build by a rollback");
            rows.push(("newest format", newest));
            rows.push(("format of the old build", old_build.format.to_string()));
        }
        print(&kill_counts, &process_events, &self.load_client, &audit, time, checks, rows);
        Ok(())
    }
}

/// Opens the world, and returns a client on it.
async fn open_load_client(
    workdir: &Workdir,
    logs: &Arc<LogFiles>,
    options: &KillLoopOptions,
) -> Result<LoadClient> {
    let open = async || outlast::open(&workdir.url()).await;
    // A server that is restarting refuses connections.
    let world = if options.restarts > 0 { retry_while_unavailable(open).await? } else { open().await? };
    let mut load_client = LoadClient::new(world, logs.clone(), options.seed);
    if options.restarts > 0 {
        load_client = load_client.retrying();
    }
    // An older build does not have this code. At first, or between two restarts, a server may not answer.
    let mut tries = 0;
    while let Err(error) = booking::prepare(workdir, load_client.client()).await {
        tries += 1;
        if options.restarts == 0 || tries == PREPARATIONS_MAX {
            return Err(error);
        }
        sleep(PREPARATION_PAUSE).await;
    }
    Ok(load_client.with_bookings())
}

fn print(
    kill_counts: &KillCounts,
    process_events: &[ProcessEvent],
    load_client: &LoadClient,
    audit: &Audit,
    time: Duration,
    checks: Checks,
    builds: Vec<(&'static str, String)>,
) {
    let lost = process_events.iter().filter(|note| matches!(note, ProcessEvent::SessionLost { .. })).count();
    let taken_over = process_events
        .iter()
        .map(|note| if let ProcessEvent::TookOver { runs, .. } = note { *runs } else { 0 });
    let from_outside = kill_counts.kills - kill_counts.at_commit_points;
    let mut rows = vec![
        ("runs", format!("{} ({} transfers)", audit.runs, load_client.transfers())),
        (
            "kills",
            format!(
                "{} ({} at a commit point, {from_outside} at an instant)",
                kill_counts.kills, kill_counts.at_commit_points
            ),
        ),
        ("freezes", format!("{} (for longer than the session)", kill_counts.freezes)),
        ("sessions lost alive", lost.to_string()),
        ("runs taken over", format!("{} or more", taken_over.sum::<u64>())),
        ("transfers paused and resumed", load_client.paused().to_string()),
        ("runs stuck as poison", format!("{} (resumed)", load_client.resumed.len())),
        (
            "attempts",
            format!("{} ({} made again, {} of them late)", audit.attempts, audit.repeated, audit.late),
        ),
        ("bank entries", audit.entries.to_string()),
        (
            "bookings",
            format!(
                "{} completed, {} undone, {} started by a schedule",
                audit.bookings.completed, audit.bookings.undone, audit.bookings.scheduled
            ),
        ),
        (
            "bookings again",
            format!(
                "{} by themselves, {} retried, {} restarted, {} forked",
                audit.bookings.unsteady, audit.bookings.late, audit.bookings.restarted, audit.bookings.forked
            ),
        ),
        ("checks", checks.made.to_string()),
        ("wall time", seconds(time)),
    ];
    if let Some(restarts) = restarts(process_events) {
        rows.insert(
            3,
            ("restarts", format!("{restarts}; {} calls of the client unanswered", load_client.unanswered)),
        );
    }
    rows.splice(1..1, builds);
    print_table("kill loop: all runs ended, every effect happened once", &rows);
}

/// The number and kinds of restarts, and the longest time without a server.
fn restarts(process_events: &[ProcessEvent]) -> Option<String> {
    let mut kinds = BTreeMap::<&str, u32>::new();
    let mut longest = Duration::ZERO;
    for note in process_events {
        if let ProcessEvent::Restarted { how, from, until } = note {
            *kinds.entry(how).or_default() += 1;
            longest = longest.max(until.since(*from));
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(how, count)| format!("{count} {how}")).collect();
    (!kinds.is_empty()).then(|| format!("{}, the longest took {}", kinds.join(", "), seconds(longest)))
}
