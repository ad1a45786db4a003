//! A session: a worker's right to hold runs, and all that depends on it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use outlast_core::event::{FORMAT, RULES, format_of_rules};
use outlast_core::turn::LastTurn;
use outlast_core::{
    Beat, Busy, ChangeSignal, Claimed, Clock, Codec, Effects, HeldRun, Join, Message, RunId, RunMap,
    SessionId, Start, Started, Stuck, StuckReason, SuspectRoom, Then, Timestamp, Turn, World, WorldError,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::attempts::{AttemptIds, Ready};
use super::cache::Cache;
use super::committer::Committer;
use super::crash_classes::CrashClasses;
use super::heartbeats::Heartbeats;
use super::histories::Given;
use super::metrics::Meter;
use super::notes::{Note, Notes};
use super::notice::OnRetry;
use super::retention::with_retention;
use super::task::Task;
use crate::authoring::registry::Registered;
use crate::ids;
use crate::outage::{Call, Outage};
use crate::replay::{StepToAttempt, panic_text};
use crate::upkeep;

/// What the builder settled, for every session of a worker.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) build: Arc<str>,
    pub(super) code: Registered,
    /// The queues that the worker serves.
    pub(super) queues: Arc<[Arc<str>]>,
    pub(super) codec: Arc<dyn Codec>,
    pub(super) live_max: usize,
    pub(super) cached_max: usize,
    pub(super) session_time: Duration,
    pub(super) drain: Duration,
    pub(super) is_paranoid: bool,
    /// How many events of one turn are committed together.
    pub(super) part_events: usize,
    pub(super) on_retry: Option<OnRetry>,
    /// How long a turn may compute.
    pub(super) turn_time: Duration,
    pub(super) meter: Arc<Meter>,
    /// Says when the world does not answer, for all sessions.
    pub(super) outage: Arc<Outage>,
    /// The names of the registered steps, in order.
    pub(super) step_names: Vec<Arc<str>>,
    /// Lets so many attempts at blocking steps be under way at the same time.
    pub(super) blocking: Arc<Semaphore>,
    /// How long runs are kept after their end, if not for ever.
    pub(super) retention: Option<Duration>,
    /// The highest rules that the worker says it knows.
    pub(super) rules: u32,
}

impl Settings {
    /// The highest durable format that the worker says it can read.
    pub(super) fn format(&self) -> u32 {
        if self.rules < RULES { format_of_rules(self.rules) } else { FORMAT }
    }

    /// What is needed to attempt a step; `None` when its code is not here. It is doubtful when another
    /// worker may have attempted it.
    pub(super) fn ready(&self, mut step: StepToAttempt, is_doubtful: bool) -> Option<Ready> {
        let is_first = step.attempt == 1 && !is_doubtful;
        if let Some(call) = step.call.clone() {
            return Some(Ready { step, is_first, is_doubtful, call, gates: Vec::new(), place: 0 });
        }
        let call = self.code.step(&step.name)?.clone();
        let (mut gates, mut place) = (Vec::new(), 0);
        if let Some(manner) = self.code.manner(&step.name) {
            place = manner.place;
            gates.extend(manner.limit.clone());
            gates.extend(manner.policy.is_blocking.then(|| self.blocking.clone()));
            step.policy.is_at_most_once |= manner.policy.is_at_most_once;
            step.policy.heartbeat_timeout = step.policy.heartbeat_timeout.or(manner.policy.heartbeat_timeout);
        }
        Some(Ready { step, is_first, is_doubtful, call, gates, place })
    }
}

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
    pub(super) cache: Mutex<Cache>,
    /// The worker stops: nothing new is taken.
    pub(super) stopping: CancellationToken,
    /// The session is lost: nothing may be started or written.
    pub(super) lost: CancellationToken,
    /// Cancelled when the first claim was answered: from then on starts are taken.
    pub(super) has_claimed: CancellationToken,
    /// Told when a live run ends.
    pub(super) freed: ChangeSignal,
    /// Told when the world may say that the session holds a run which it does not know.
    pub(super) unsure: Notify,
    /// Keeps a virtual clock from passing over that.
    pub(super) doubting: Mutex<Option<Busy>>,
    /// How many claims were begun, and how many of them are over.
    pub(super) claims: Claims,
    /// What attempts said with their heartbeats and the world is to keep.
    pub(super) heartbeats: Arc<Heartbeats>,
    /// Whether what turns do to other runs waits to be delivered.
    pub(super) has_deferred_effects: bool,
    /// The rules that new runs get, as the world said last.
    rules: AtomicU32,
    /// Whether the last beat counted other runs than are live here.
    differed: AtomicBool,
    pub(super) attempt_ids: AttemptIds,
    live: Mutex<LiveRuns>,
}

/// The claims of a session; at most one is under way.
#[derive(Debug, Default)]
pub(super) struct Claims {
    begun: AtomicU64,
    over: AtomicU64,
}

impl Claims {
    /// A claim is under way until the returned value is dropped.
    pub(super) fn begin(&self) -> Claiming<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        Claiming(self)
    }

    /// The number of the claim that is under way.
    pub(super) fn under_way(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        (self.over.load(Ordering::Acquire) < begun).then_some(begun)
    }
}

/// A claim that is under way.
pub(super) struct Claiming<'a>(&'a Claims);

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        self.0.over.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Debug, Default)]
struct LiveRuns {
    by_run: RunMap<LiveRun>,
    classes: CrashClasses,
    /// Room that a claim under way may fill.
    set_aside: usize,
}

impl LiveRuns {
    fn remove(&mut self, run: RunId) {
        if let Some(entry) = self.by_run.remove(&run) {
            self.classes.remove(run, entry.crashes);
        }
    }

    fn set_crashes(&mut self, run: RunId, crashes: u32) {
        if let Some(entry) = self.by_run.get_mut(&run) {
            let before = std::mem::replace(&mut entry.crashes, crashes);
            self.classes.change(run, before, crashes);
        }
    }

    /// By run: so a simulation is the same every time.
    fn in_order(&self) -> impl Iterator<Item = &LiveRun> {
        let mut runs: Vec<_> = self.by_run.iter().collect();
        runs.sort_unstable_by_key(|(run, _)| **run);
        runs.into_iter().map(|(_, entry)| entry)
    }
}

#[derive(Debug)]
struct LiveRun {
    notes: Arc<Notes>,
    task: Option<AbortHandle>,
    /// How many crashes count against it.
    crashes: u32,
    /// Its end is being committed.
    is_ending: bool,
}

impl Session {
    /// Joins the world.
    pub(super) async fn join(
        world: Arc<dyn World>,
        settings: Arc<Settings>,
        stopping: CancellationToken,
    ) -> Result<Arc<Self>, WorldError> {
        let id = ids::session();
        let code = settings.code.code();
        let join = Join {
            session: id,
            host: host_name(),
            pid: std::process::id(),
            build: settings.build.clone(),
            code: if settings.retention.is_some() { with_retention(code) } else { code },
            queues: settings.queues.clone(),
            time: settings.session_time,
            rules: settings.rules,
            format: settings.format(),
        };
        world.join(join).await?;
        match world.takeover(id).await {
            // Frozen since it joined, for so long that it was taken over itself. The first claim finds that
            // out as well, and joins anew.
            Ok(_) | Err(WorldError::Fenced(_)) => {}
            Err(error) => return Err(error),
        }
        settings.outage.answered(Call::Join);
        let runtime = Handle::current();
        let (clock, cached_max) = (world.clock(), settings.cached_max);
        let session = Arc::new(Self {
            id,
            joined_at: clock.now(),
            clock,
            committer: Arc::new(Committer::new(world.clone(), id, runtime.clone(), &settings)),
            settings,
            cache: Mutex::new(Cache::new(cached_max)),
            stopping,
            lost: CancellationToken::new(),
            has_claimed: CancellationToken::new(),
            freed: ChangeSignal::new(world.clock()),
            unsure: Notify::new(),
            doubting: Mutex::default(),
            claims: Claims::default(),
            heartbeats: Arc::default(),
            has_deferred_effects: world.describe().effects == Effects::Deferred,
            rules: AtomicU32::new(1),
            differed: AtomicBool::new(false),
            attempt_ids: AttemptIds::new(id),
            live: Mutex::default(),
            world,
            runtime,
        });
        match session.beat().await {
            Ok(_) | Err(WorldError::Fenced(_)) => Ok(session),
            Err(error) => Err(error),
        }
    }

    /// Renews the session, and brings what attempts said with their heartbeats.
    pub(super) async fn beat(&self) -> Result<Beat, WorldError> {
        let details = self.heartbeats.pending(&*self.settings.codec);
        let beat = self.world.beat(self.id, &self.report(), &details).await?;
        self.heartbeats.stored(&details);
        self.rules.store(beat.rules, Ordering::Release);
        self.compare_held(beat.held);
        Ok(beat)
    }

    /// Delivers what turns do to other runs, of whichever worker, if the world does not do that with their commits.
    pub(super) async fn deliver(&self) -> Result<(), WorldError> {
        while self.has_deferred_effects && self.world.deliver(self.id).await?.left > 0 {}
        Ok(())
    }

    /// How many more runs may be live.
    pub(super) fn room(&self) -> usize {
        self.settings.live_max.saturating_sub(self.live_count())
    }

    /// Sets room aside for a claim, so that no start takes it meanwhile; answers how much.
    pub(super) fn set_aside(&self, limit: usize) -> usize {
        let mut live = self.live.lock();
        live.set_aside = self.settings.live_max.saturating_sub(live.by_run.len()).min(limit);
        live.set_aside
    }

    /// The claim is over, and what it brought is live.
    pub(super) fn set_nothing_aside(&self) {
        self.live.lock().set_aside = 0;
    }

    pub(super) fn live_count(&self) -> usize {
        self.live.lock().by_run.len()
    }

    pub(super) fn is_live(&self, run: RunId) -> bool {
        self.live.lock().by_run.contains_key(&run)
    }

    /// Whether the run is live and its end is yet to be committed.
    pub(super) fn holds(&self, run: RunId) -> bool {
        self.live.lock().by_run.get(&run).is_some_and(|entry| !entry.is_ending)
    }

    /// The end of the run is about to be committed.
    pub(super) fn set_ending(&self, run: RunId) {
        if let Some(entry) = self.live.lock().by_run.get_mut(&run) {
            entry.is_ending = true;
        }
    }

    /// Which runs that may have crashed a worker a claim may bring.
    pub(super) fn suspect_room(&self) -> SuspectRoom {
        self.live.lock().classes.room(self.settings.live_max)
    }

    /// Whether the worker holds a run that is carried apart from others.
    pub(super) fn has_suspect(&self) -> bool {
        self.live.lock().classes.has_suspect()
    }

    /// Until when nothing is taken, because a run is tried alone.
    pub(super) fn trial_until(&self) -> Option<Timestamp> {
        self.live.lock().classes.trial_until(self.clock.now())
    }

    /// The claim was answered with these runs.
    pub(super) fn claim_answered(&self, claimed: &[Claimed]) {
        self.live.lock().classes.claim_answered(claimed, self.clock.now());
    }

    /// Goes on with a run that was claimed.
    pub(super) fn go_on(self: &Arc<Self>, given: Given) {
        let (run, crashes) = (given.claimed.run, given.claimed.columns.crashes);
        let mut live = self.live.lock();
        if let Some(before) = live.by_run.get(&run) {
            // Its task has released it and is about to end: it will find this first.
            before.notes.put(Note::Claimed(Box::new(given)));
            return;
        }
        let notes = self.enlist(&mut live, run, crashes);
        let task = Task { session: self.clone(), run, notes, _busy: self.busy() };
        let task = self.runtime.spawn(guarded(self.clone(), run, task.claimed(given)));
        self.set_task(&mut live, run, task.abort_handle());
    }

    /// Takes a run at its start, if there is room and the code, its queue is served here, and it is not for
    /// its priority to say which run goes first.
    #[allow(clippy::result_large_err, reason = "the start is given back, not an error to carry around")]
    pub(super) fn take(
        self: &Arc<Self>,
        mut start: Start,
    ) -> Result<oneshot::Receiver<Result<Started, WorldError>>, Start> {
        let has_code = self.settings.code.workflow(&start.workflow, start.version).is_some();
        let is_for_us = has_code && start.priority == 0 && self.settings.queues.contains(&start.queue);
        if !is_for_us || self.stopping.is_cancelled() || self.lost.is_cancelled() {
            return Err(start);
        }
        let mut live = self.live.lock();
        let is_known = live.by_run.contains_key(&start.run);
        let has_room = live.by_run.len() + live.set_aside < self.settings.live_max;
        if is_known || !has_room || !live.classes.takes_starts(|| self.clock.now()) {
            return Err(start);
        }
        start.rules = start.rules.min(self.rules.load(Ordering::Acquire));
        let (answer, answered) = oneshot::channel();
        let run = start.run;
        let notes = self.enlist(&mut live, run, 0);
        let task = Task { session: self.clone(), run, notes, _busy: self.busy() };
        let task = self.runtime.spawn(guarded(self.clone(), run, task.started(Arc::new(start), answer)));
        self.set_task(&mut live, run, task.abort_handle());
        Ok(answered)
    }

    fn enlist(&self, live: &mut LiveRuns, run: RunId, crashes: u32) -> Arc<Notes> {
        let notes = Arc::<Notes>::default();
        live.classes.add(crashes);
        live.by_run.insert(run, LiveRun { notes: notes.clone(), task: None, crashes, is_ending: false });
        notes
    }

    fn set_task(&self, live: &mut LiveRuns, run: RunId, task: AbortHandle) {
        if let Some(entry) = live.by_run.get_mut(&run) {
            entry.task = Some(task);
        }
    }

    /// Passes messages on to a live run.
    pub(super) fn tell(&self, run: RunId, messages: Vec<Message>) {
        if let Some(entry) = self.live.lock().by_run.get(&run) {
            for message in messages {
                entry.notes.put(Note::Message(message));
            }
        }
    }

    /// The run's task is done with it, unless it was claimed again meanwhile. `last` runs under the lock.
    pub(super) fn delist(&self, run: RunId, notes: &Notes, last: impl FnOnce()) -> Option<Box<Given>> {
        let mut live = self.live.lock();
        for note in notes.take() {
            if let Note::Claimed(given) = note {
                live.set_crashes(run, given.claimed.columns.crashes);
                return Some(given);
            }
        }
        live.remove(run);
        last();
        drop(live);
        self.freed.notify();
        None
    }

    /// The task of a live run is gone, however it ended: so is its entry.
    pub(super) fn forget(&self, run: RunId, notes: &Arc<Notes>) {
        let mut live = self.live.lock();
        if live.by_run.get(&run).is_some_and(|entry| Arc::ptr_eq(&entry.notes, notes)) {
            live.remove(run);
            drop(live);
            self.freed.notify();
        }
    }

    /// A run that may have crashed a worker has committed, and has so many crashes from now on.
    pub(super) fn set_crashes(&self, run: RunId, crashes: u32) {
        self.live.lock().set_crashes(run, crashes);
        self.freed.notify();
    }

    /// The runs whose turn has been computed for longer than this.
    pub(super) fn computing_longer_than(&self, limit: Duration) -> Vec<(RunId, Arc<Notes>)> {
        let live = self.live.lock();
        let hung = live.by_run.iter().filter(|(_, entry)| entry.notes.computing_for() > Some(limit));
        hung.map(|(run, entry)| (*run, entry.notes.clone())).collect()
    }

    /// Compares what the world says the session holds with what it knows.
    fn compare_held(&self, held: u64) {
        self.settings.meter.held_runs.set(held);
        let differs = held != self.live_count() as u64;
        // Once is normal: what is being committed is counted by one side only.
        if self.differed.swap(differs, Ordering::AcqRel) && differs {
            self.doubt();
        }
    }

    /// The world may say that the session holds a run which it does not know.
    pub(super) fn doubt(&self) {
        *self.doubting.lock() = Some(self.busy());
        self.unsure.notify_one();
    }

    /// Tells every live run that the worker stops.
    pub(super) fn wind_down(&self) {
        let live = self.live.lock();
        for entry in live.in_order() {
            entry.notes.put(Note::Stop);
        }
    }

    /// Drops everything at once: no code of a live run is polled again, its attempts are told to stop.
    pub(super) fn abandon(&self) {
        self.lost.cancel();
        let live = std::mem::take(&mut *self.live.lock());
        for entry in live.in_order() {
            if let Some(task) = &entry.task {
                task.abort();
            }
        }
        *self.cache.lock() = Cache::new(self.settings.cached_max);
        *self.doubting.lock() = None;
        self.freed.notify();
    }

    /// Waits until no run is live.
    pub(super) async fn drained(&self) {
        loop {
            let freed = self.freed.epoch();
            if self.live_count() == 0 {
                return;
            }
            self.freed.changed_since(freed).await;
        }
    }

    /// A run whose task panicked, outside the code that the engine guards: in a codec, say. It is
    /// stuck, instead of held for ever by nobody.
    async fn strand(&self, run: RunId, panic: String) -> Result<(), WorldError> {
        tracing::error!(%run, panic, "the task of a run panicked");
        let held = self.world.held(self.id).await?;
        let Some(held) = held.into_iter().find(|held| held.run == run) else { return Ok(()) };
        let stuck = Stuck {
            reason: StuckReason::Panicked,
            message: format!("code that the run needs panicked: {panic}; mend it and deploy"),
            build: self.settings.build.to_string(),
        };
        let turn = self.letting_go(held, Then::Stuck(stuck)).await?;
        self.committer.commit(turn).await.map(drop)
    }

    /// A turn without events, which lets go of a run that the session holds.
    pub(super) async fn letting_go(&self, held: HeldRun, then: Then) -> Result<Turn, WorldError> {
        let view = self.world.run(held.run).await?;
        // A clock that was set back must not take the run along.
        let history = upkeep::read_history(&*self.world, held.run).await?;
        let before = history.last().map_or(view.created_at, |turn| turn.at);
        let at = self.clock.now().max(before);
        let HeldRun { run, turn, seq, columns, .. } = held;
        let last = LastTurn { run, turn, seq, consumed: view.consumed, columns };
        Ok(Turn { then, ..Turn::following(&last, ids::turn(), at, self.settings.build.clone()) })
    }

    pub(super) fn busy(&self) -> Busy {
        self.clock.busy()
    }
}

/// Work on a run that leaves it stuck if it panics. Not an async function: that would keep the work's
/// state twice, and there is one for each live run.
fn guarded(
    session: Arc<Session>,
    run: RunId,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    AssertUnwindSafe(work).catch_unwind().then(move |ended| match ended {
        Ok(()) => Either::Left(std::future::ready(())),
        Err(panic) => {
            let text = panic_text(&*panic);
            Either::Right(Box::pin(async move {
                if let Err(error) = session.strand(run, text).await {
                    tracing::warn!(%run, %error, "a run whose task panicked was not marked");
                }
            }))
        }
    })
}

fn host_name() -> String {
    std::fs::read_to_string("/etc/hostname")
        .map_or_else(|_| "localhost".into(), |name| name.trim().to_owned())
}
