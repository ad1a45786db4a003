//! A session: a worker's right to hold runs, and everything that exists once per session.
//!
//! The protocol between sessions and the world is described in `docs/session-protocol.md`.

pub(super) mod live_runs;

pub(super) mod claim_loop;

pub(super) mod missing_histories;

pub(super) mod crash_classes;

pub(super) mod beat;

mod report;

pub(super) mod watchdog;

pub(super) mod hand_back;

pub(crate) mod retention;

pub(in crate::worker) mod definitions;

pub(super) mod idle;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use outlast_core::queue::{BUILT_IN_PREFIX, STEP_PREFIX};
use outlast_core::turn::LastTurn;
use outlast_core::{
    Beat, Busy, ChangeSignal, Clock, Effects, HeldRun, Join, RunId, SessionId, Stuck, StuckReason, Then,
    Timestamp, Turn, World, WorldError,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::idle::IdleChecks;
use self::live_runs::LiveRuns;
use self::retention::with_retention;
use super::attempts::AttemptIds;
use super::attempts::heartbeats::Heartbeats;
use super::committer::Committer;
use super::outage::{Call, whole_time};
use super::read_all::read_history;
use super::run::machine_cache::MachineCache;
use super::settings::Settings;
use super::stream_writer::StreamWriter;
use crate::authoring::attempt_services::{AttemptReports, AttemptServices};
use crate::client::Client;
use crate::ids;
use crate::replay::panic_text;

/// One session of a worker.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) world: Arc<dyn World>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) joined_at: Timestamp,
    pub(super) settings: Arc<Settings>,
    pub(super) runtime: Handle,
    pub(super) committer: Arc<Committer>,
    pub(super) cache: Mutex<MachineCache>,
    /// The worker is stopping: nothing new is claimed.
    pub(super) stopping: CancellationToken,
    /// The session is lost: nothing may be started or written.
    pub(super) lost: CancellationToken,
    /// Whether the loss of the session was logged.
    is_loss_logged: AtomicBool,
    /// Cancelled when the first claim has returned: from then on starts are taken.
    pub(super) has_claimed: CancellationToken,
    /// Notified when a live run is released, or when the worker may hold other suspects.
    pub(super) capacity_freed: ChangeSignal,
    /// Notified when the session may hold runs, according to the world, that are not live here.
    pub(super) hand_back_requested: Notify,
    /// Keeps a virtual clock from advancing while such a request waits.
    pub(super) hand_back_busy: Mutex<Option<Busy>>,
    pub(super) claims: ClaimCounter,
    /// The heartbeat details that the next beat sends to the world.
    pub(super) heartbeats: Arc<Heartbeats>,
    /// Whether the world applies outboxes only when [`World::deliver`] is called.
    pub(super) has_deferred_effects: bool,
    /// The rules that new runs get, according to the last beat.
    rules: AtomicU32,
    /// Whether the number of held runs, according to the last beat, differed from the number of live runs.
    held_count_differed: AtomicBool,
    pub(super) attempt_ids: AttemptIds,
    /// What the session's attempts use.
    pub(super) attempt_services: Arc<AttemptServices>,
    /// The claims that waiters for an idle worker have requested, and the results of all claims.
    pub(super) idle_checks: IdleChecks,
    live: Mutex<LiveRuns>,
}

/// Counts the claims of a session. At most one is in progress.
#[derive(Debug, Default)]
pub(super) struct ClaimCounter {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl ClaimCounter {
    /// Begins a claim. It is in progress until the returned guard is dropped.
    pub(super) fn begin(&self) -> ClaimInProgress<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        ClaimInProgress(self)
    }

    /// The number of claims that have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// The number of the claim that is in progress.
    pub(super) fn in_progress(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        (self.ended.load(Ordering::Acquire) < begun).then_some(begun)
    }
}

/// A claim that is in progress until this is dropped.
pub(super) struct ClaimInProgress<'a>(&'a ClaimCounter);

impl Drop for ClaimInProgress<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl Session {
    /// Joins the world with a new session, and takes over the runs of workers that are gone.
    pub(super) async fn join(
        world: Arc<dyn World>,
        settings: Arc<Settings>,
        stopping: CancellationToken,
    ) -> Result<Arc<Self>, WorldError> {
        let id = ids::session();
        world.join(join_request(id, &settings)).await?;
        let taken_over = match world.takeover(id).await {
            Ok(runs) => runs,
            // This process was frozen since it joined, for so long that the session was taken over. The first claim
            // detects this as well, and the worker joins again.
            Err(WorldError::Fenced(_)) => 0,
            Err(error) => {
                // The worker joins again with another session.
                let _ = world.leave(id).await;
                return Err(error);
            }
        };
        settings.outage.answered(Call::Join);
        let (runtime, lost) = (Handle::current(), CancellationToken::new());
        let (clock, cached_max) = (world.clock(), settings.cached_max);
        let committer = Committer::new(world.clone(), id, runtime.clone(), settings.clone(), lost.clone());
        let heartbeats = Arc::<Heartbeats>::default();
        let stream_writer = StreamWriter::new(world.clone(), id, runtime.clone(), &settings, lost.clone());
        let reports =
            AttemptReports { heartbeats: heartbeats.clone(), stream_writer: Arc::new(stream_writer) };
        let client = Client::of_worker(settings.client_world(&world), settings.codec.clone());
        let attempt_services = AttemptServices::of_session(client, &clock, &settings.codec, reports);
        let session = Arc::new(Self {
            id,
            joined_at: clock.now(),
            clock,
            committer: Arc::new(committer),
            settings,
            cache: Mutex::new(MachineCache::new(cached_max)),
            stopping,
            lost,
            is_loss_logged: AtomicBool::new(false),
            has_claimed: CancellationToken::new(),
            capacity_freed: ChangeSignal::new(world.clock()),
            hand_back_requested: Notify::new(),
            hand_back_busy: Mutex::default(),
            claims: ClaimCounter::default(),
            heartbeats,
            has_deferred_effects: world.describe().effects == Effects::Deferred,
            rules: AtomicU32::new(1),
            held_count_differed: AtomicBool::new(false),
            attempt_ids: AttemptIds::new(id),
            attempt_services: Arc::new(attempt_services),
            idle_checks: IdleChecks::default(),
            live: Mutex::default(),
            world,
            runtime,
        });
        session.log_takeover(taken_over, "found_at_join");
        match session.beat().await {
            Ok(_) | Err(WorldError::Fenced(_)) => Ok(session),
            Err(error) => Err(error),
        }
    }

    /// The kind and place of the world, for log lines.
    fn world_name(&self) -> String {
        let description = self.world.describe();
        format!("{} `{}`", description.kind, description.place)
    }

    /// Logs that the worker has joined the world.
    pub(super) fn log_joined(&self) {
        let code = self.settings.code.code();
        // Built-in workflows are left out.
        let names = code.iter().map(|code| &*code.workflow);
        let workflows: Vec<_> = names
            .filter(|name| ![BUILT_IN_PREFIX, STEP_PREFIX].iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        tracing::info!(
            session = %self.id,
            build = %self.settings.build,
            queues = ?self.settings.queues,
            ?workflows,
            "the worker joined {}",
            self.world_name()
        );
    }

    /// Logs that the worker has joined the world again, this long after it lost its session.
    pub(super) fn log_rejoined(&self, after: Duration) {
        tracing::info!(
            session = %self.id,
            "the worker rejoined {} after {}", self.world_name(), whole_time(after)
        );
    }

    fn log_takeover(&self, runs: u64, cause: &str) {
        if runs > 0 {
            self.settings.metrics.takeovers.of(cause).metric.add(1);
            let noun = if runs == 1 { "run" } else { "runs" };
            tracing::info!(session = %self.id, runs, "took over {runs} {noun} of workers that are gone");
        }
    }

    /// Gives the session up, and logs the cause unless one was logged before.
    pub(super) fn lose(&self, cause: &str) {
        if !self.is_loss_logged.swap(true, Ordering::AcqRel) {
            tracing::warn!(session = %self.id, "session lost, rejoining: {cause}");
        }
        self.abandon();
    }

    /// Gives the session up because of the error of a call. If the storage of the world is gone, the worker stops.
    pub(super) fn lose_after(&self, error: &WorldError) {
        if !matches!(error, WorldError::Gone(_)) {
            return self.lose(&error.to_string());
        }
        self.settings.world_gone.record(error);
        self.abandon();
    }

    /// Renews the session, and sends the heartbeat details of its attempts to the world.
    pub(super) async fn beat(&self) -> Result<Beat, WorldError> {
        let details = self.heartbeats.pending_details();
        let mut report = self.report();
        let mut beat = self.world.beat(self.id, &report, &details).await;
        if beat.as_ref().is_err_and(WorldError::is_transient) && report.uncommitted.take().is_some() {
            // On a full disk there may be room for the report only without this.
            beat = self.world.beat(self.id, &report, &details).await;
        }
        let beat = beat?;
        self.heartbeats.mark_stored(&details);
        self.rules.store(beat.rules, Ordering::Release);
        self.check_held_count(beat.held);
        Ok(beat)
    }

    /// Ends the sessions of workers that are gone; their runs become ready.
    pub(super) async fn take_over(&self) -> Result<(), WorldError> {
        self.log_takeover(self.world.takeover(self.id).await?, "found_at_beat");
        Ok(())
    }

    /// Delivers the outboxes of committed turns, of any worker, if the world does not apply them with the commits.
    pub(super) async fn deliver(&self) -> Result<(), WorldError> {
        while self.has_deferred_effects && self.world.deliver(self.id).await?.left > 0 {}
        Ok(())
    }

    /// Compares the number of runs that the session holds according to the world with the number of live runs.
    fn check_held_count(&self, held: u64) {
        self.settings.meter.held_runs.set(held);
        let differs = held != self.live_count() as u64;
        // A single difference is normal: a run whose commit is in progress is counted on one side only.
        if self.held_count_differed.swap(differs, Ordering::AcqRel) && differs {
            self.request_hand_back();
        }
    }

    /// Requests a check for runs that the session holds according to the world and that are not live here.
    pub(super) fn request_hand_back(&self) {
        *self.hand_back_busy.lock() = Some(self.busy());
        self.hand_back_requested.notify_one();
    }

    /// Drops all runs at once: no code of a live run is polled again, and its attempts are asked to stop.
    pub(super) fn abandon(&self) {
        self.lost.cancel();
        self.abort_tasks();
        let cache = std::mem::replace(&mut *self.cache.lock(), MachineCache::new(self.settings.cached_max));
        // The futures are dropped in the background (`background_drops.rs`).
        drop(cache);
        *self.hand_back_busy.lock() = None;
        self.capacity_freed.notify();
    }

    /// Waits until no run is live.
    pub(super) async fn drained(&self) {
        loop {
            let epoch = self.capacity_freed.epoch();
            if self.live_count() == 0 {
                return;
            }
            self.capacity_freed.changed_since(epoch).await;
        }
    }

    /// Marks a run as stuck whose task panicked outside of the code that the engine guards, for example in a codec.
    /// Otherwise the session would hold the run, and no task would work on it.
    async fn mark_panicked(&self, run: RunId, panic: String) -> Result<(), WorldError> {
        tracing::error!(%run, panic, "the task of a run panicked");
        self.settings.metrics.stuck.of("panicked").metric.add(1);
        let held = self.world.held(self.id).await?;
        let Some(held) = held.into_iter().find(|held| held.run == run) else { return Ok(()) };
        let message = format!("code that the run needs panicked: {panic}; deploy a fix and the run resumes");
        let stuck = Stuck::new(StuckReason::Panicked, message).in_build(&*self.settings.build);
        let turn = self.release_turn(held, Then::Stuck(stuck)).await?;
        self.committer.commit(turn).await.map(drop)
    }

    /// Computes a turn without events that ends the session's hold of a run.
    pub(super) async fn release_turn(&self, held: HeldRun, then: Then) -> Result<Turn, WorldError> {
        let view = self.world.run(held.run).await?;
        // The times of turns must not decrease, even if the clock was set back.
        let history = read_history(&*self.world, held.run, held.columns.replay_from).await?;
        let before = history.last().map_or(view.created_at, |turn| turn.at);
        let at = self.clock.now().max(before);
        let HeldRun { run, turn, seq, columns, .. } = held;
        let last = LastTurn { run, turn, seq, consumed: view.consumed, columns };
        Ok(Turn { then, ..Turn::following(&last, ids::turn(), at, self.settings.build.clone()) })
    }

    /// Returns a token that keeps a virtual clock from advancing.
    pub(super) fn busy(&self) -> Busy {
        self.clock.busy()
    }
}

/// Runs the work on a run, and marks the run as stuck if the work panics. This is not an async function: the future of
/// one would contain the state of the work twice, and there is one per live run.
fn stuck_on_panic(
    session: Arc<Session>,
    run: RunId,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    AssertUnwindSafe(work).catch_unwind().then(move |ended| match ended {
        Ok(()) => Either::Left(std::future::ready(())),
        Err(panic) => {
            let text = panic_text(&*panic);
            Either::Right(Box::pin(async move {
                if let Err(error) = session.mark_panicked(run, text).await {
                    tracing::warn!(%run, %error, "cannot mark a run whose task panicked as stuck");
                }
            }))
        }
    })
}

/// What a new session tells the world about its worker.
fn join_request(session: SessionId, settings: &Settings) -> Join {
    let code = settings.code.code();
    Join {
        session,
        host: host_name(),
        pid: ids::process_id(),
        build: settings.build.clone(),
        code: if settings.retention.is_endless() { code } else { with_retention(code) },
        queues: settings.queues.clone(),
        time: settings.session_time,
        rules: settings.rules,
        format: settings.format(),
    }
}

fn host_name() -> String {
    if ids::is_simulated() {
        return "simulated".into();
    }
    std::fs::read_to_string("/etc/hostname")
        .map_or_else(|_| "localhost".into(), |name| name.trim().to_owned())
}
