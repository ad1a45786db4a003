//! The worker: claims runs and does their work.

mod attempts;
mod beat;
mod build_id;
mod by_handle;
mod cache;
mod committer;
mod crash_classes;
mod fact;
mod hand_back;
pub(crate) mod heartbeats;
mod histories;
mod live;
mod metrics;
mod notes;
mod notice;
mod outcomes;
mod place;
mod pump;
mod report;
pub(crate) mod retention;
mod session;
mod signals;
mod suspicion;
mod task;
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::RULES;
use outlast_core::limits::{
    BLOCKING_ATTEMPTS_DEFAULT, CACHED_FUTURES_DEFAULT, LIVE_RUNS_DEFAULT, PART_EVENTS_MAX, QUEUES_MAX,
    SESSION_DEFAULT, SESSION_MIN, TURN_TIME_DEFAULT,
};
use outlast_core::queue::{check_queue, default_queues};
use outlast_core::{Busy, Codec, IntoDuration, PlainJson, RunId, SessionId, Start, World, WorldError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::beat::Beating;
use self::build_id::executable_build_id;
use self::hand_back::hand_back_unknown;
use self::metrics::Meter;
pub use self::metrics::{Metrics, Times};
use self::notice::OnRetry;
pub use self::notice::RetryNotice;
use self::pump::{PumpEnd, pump};
use self::retention::forget_old;
use self::session::{Session, Settings};
use self::watchdog::Watching;
use crate::authoring::registry::{Register, Registry};
use crate::authoring::step::StepHandle;
use crate::client::local_workers::{LocalWorker, LocalWorkers, TakenStart};
use crate::clock::pause;
use crate::error::{Error, StepError};
use crate::outage::{Call, Outage};

const REJOIN_PAUSE: Duration = Duration::from_millis(200);
const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

/// How long the start of a worker waits for its first claim. Work begins all the same when that takes longer.
const FIRST_CLAIM_PATIENCE: Duration = Duration::from_secs(1);

/// A worker that has joined a world. It works until it is stopped or dropped.
///
/// ```
/// # use outlast::prelude::*;
/// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// let world = outlast::open("memory:").await?;
/// let worker = Worker::builder(world.clone()).register((greet,)).start().await?;
/// let run = Client::new(world).start(greet, &"Ada".to_string()).await?;
/// assert_eq!(run.output().await?, "hello Ada");
/// worker.stop().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Worker {
    current: Arc<Current>,
    stopping: CancellationToken,
    supervisor: Option<JoinHandle<()>>,
}

/// The session that the worker has now; after a loss it gets another one.
#[derive(Debug)]
struct Current(Mutex<Arc<Session>>);

impl Current {
    fn session(&self) -> Arc<Session> {
        self.0.lock().clone()
    }
}

impl LocalWorker for Current {
    fn take(&self, start: Start) -> Result<TakenStart, Start> {
        let answered = self.session().take(start)?;
        Ok(Box::pin(async move {
            let stopped =
                || WorldError::Unavailable("the worker stopped before the start was committed".into());
            answered.await.unwrap_or_else(|_| Err(stopped()))
        }))
    }

    fn holds(&self, run: RunId) -> bool {
        self.session().holds(run)
    }

    fn check(&self, start: &Start) -> Option<Result<(), String>> {
        let session = self.session();
        let Settings { code, codec, .. } = &*session.settings;
        let judged = code.check(&start.workflow, start.version, start.input.clone(), &**codec)?;
        Some(judged.map_err(|error| error.message().to_owned()))
    }
}

impl Worker {
    /// A worker for a world, to be given state and code.
    pub fn builder(world: Arc<dyn World>) -> WorkerBuilder<()> {
        WorkerBuilder {
            world,
            codec: Arc::new(PlainJson),
            registry: Registry::new(Arc::new(()), Arc::new(PlainJson)),
            has_code: false,
            build: None,
            queues: default_queues(),
            live_max: LIVE_RUNS_DEFAULT,
            cached_max: CACHED_FUTURES_DEFAULT,
            session_time: SESSION_DEFAULT,
            drain: DRAIN_DEFAULT,
            is_paranoid: false,
            part_events: PART_EVENTS_MAX,
            on_retry: None,
            turn_time: TURN_TIME_DEFAULT,
            blocking_max: BLOCKING_ATTEMPTS_DEFAULT,
            retention: None,
            rules: RULES,
            problem: None,
        }
    }

    /// The worker's session; after a loss it is another one.
    pub fn session(&self) -> SessionId {
        self.current.session().id
    }

    /// What the worker has done so far, in numbers: how large and how slow its commits are, how many
    /// runs were replayed, and so on.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(greet).start().await?;
    /// # Client::new(world).start(greet, "Ada".to_owned()).await?.output().await?;
    /// let metrics = worker.metrics();
    /// println!("{} turns, commits of {:.1} on average", metrics.turns, metrics.batch_mean);
    /// println!("99 of 100 commits took at most {:?}", metrics.commit_time.p99);
    /// # assert_eq!(metrics.turns, 1);
    /// # worker.stop().await
    /// # }
    /// ```
    pub fn metrics(&self) -> Metrics {
        let session = self.current.session();
        session.settings.meter.read(session.live_count())
    }

    /// Stops: takes nothing new, lets attempts under way end (for at most the drain time), hands back
    /// every run, and leaves the world.
    ///
    /// # Errors
    ///
    /// When the world does not take back the session; its runs then go on after its time is over.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stopping.cancel();
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.await.map_err(|error| Error::msg(format!("the worker's task failed: {error}")))?;
        }
        let session = self.current.session();
        // What is not delivered now is delivered by the next worker.
        let _ = session.deliver().await;
        session.world.leave(session.id).await?;
        Ok(())
    }

    /// Renews the session now, instead of when it is time. For tests: nobody beats under a virtual clock.
    ///
    /// # Errors
    ///
    /// When the world refuses.
    #[doc(hidden)]
    pub async fn beat(&self) -> Result<(), Error> {
        self.current.session().beat().await?;
        Ok(())
    }

    /// Vanishes as if the process had been killed: no drain, no good-bye. For tests.
    #[doc(hidden)]
    pub fn crash(mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
        self.current.session().abandon();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let Some(supervisor) = self.supervisor.take() else { return };
        supervisor.abort();
        let session = self.current.session();
        session.abandon();
        let runtime = session.runtime.clone();
        runtime.spawn(async move { session.world.leave(session.id).await });
    }
}

/// Settles what a worker is, then starts it.
#[derive(Debug)]
pub struct WorkerBuilder<S> {
    world: Arc<dyn World>,
    codec: Arc<dyn Codec>,
    registry: Registry<S>,
    has_code: bool,
    build: Option<String>,
    queues: Arc<[Arc<str>]>,
    live_max: usize,
    cached_max: usize,
    session_time: Duration,
    drain: Duration,
    is_paranoid: bool,
    part_events: usize,
    on_retry: Option<OnRetry>,
    turn_time: Duration,
    blocking_max: usize,
    retention: Option<Duration>,
    rules: u32,
    problem: Option<Error>,
}

impl WorkerBuilder<()> {
    /// What steps reach through [`StepContext::state`](crate::StepContext::state). Comes before
    /// [`register`](WorkerBuilder::register).
    ///
    /// # Panics
    ///
    /// When something was registered already.
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> WorkerBuilder<S> {
        assert!(!self.has_code, "call `.state(…)` before `.register(…)`");
        WorkerBuilder {
            registry: Registry::new(Arc::new(state), self.codec.clone()),
            world: self.world,
            codec: self.codec,
            has_code: false,
            build: self.build,
            queues: self.queues,
            live_max: self.live_max,
            cached_max: self.cached_max,
            session_time: self.session_time,
            drain: self.drain,
            is_paranoid: self.is_paranoid,
            part_events: self.part_events,
            on_retry: self.on_retry,
            turn_time: self.turn_time,
            blocking_max: self.blocking_max,
            retention: self.retention,
            rules: self.rules,
            problem: self.problem,
        }
    }

    /// The codec that all payloads pass; clients of the same runs need it too. Comes before
    /// [`state`](Self::state) and [`register`](WorkerBuilder::register).
    ///
    /// # Panics
    ///
    /// When something was registered already.
    #[must_use]
    pub fn codec(mut self, codec: impl Codec + 'static) -> Self {
        assert!(!self.has_code, "call `.codec(…)` before `.register(…)`");
        self.codec = Arc::new(codec);
        self.registry = Registry::new(Arc::new(()), self.codec.clone());
        self
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Adds code: functions with `#[workflow]` or `#[step]`, or a tuple of them. May be called again.
    #[must_use]
    pub fn register<R: Register<S, M>, M>(mut self, code: R) -> Self {
        code.register(&mut self.registry);
        self.has_code = true;
        self
    }

    /// Lets `code` stand in for that of a step. For the test world of `outlast-testkit`.
    #[doc(hidden)]
    #[must_use]
    pub fn mock<H, M>(
        mut self,
        step: H,
        code: impl Fn(H::Input) -> Result<H::Output, StepError> + Send + Sync + 'static,
    ) -> Self
    where
        H: StepHandle<M>,
        H::Input: serde::de::DeserializeOwned,
        H::Output: serde::Serialize,
    {
        let names = std::iter::once(step.name()).chain(step.was().iter().copied());
        self.registry.replace(names, step.policy(), code);
        self.has_code = true;
        self
    }

    /// The same worker for another world. For the test world of `outlast-testkit`.
    #[doc(hidden)]
    #[must_use]
    pub fn on(mut self, world: Arc<dyn World>) -> Self {
        self.world = world;
        self
    }

    /// The highest rules that the worker says it knows, as if it was an older build. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn rules(mut self, rules: u32) -> Self {
        self.rules = rules.clamp(1, RULES);
        self
    }

    /// How many events of one turn are committed together; at least one. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn part_events(mut self, max: usize) -> Self {
        self.part_events = max.max(1);
        self
    }

    /// Names the build, which identifies this version of the code. The default is the build id that the linker wrote
    /// into the executable, or a hash of the executable's contents if there is none.
    /// Runs that one build left stuck are tried again by another.
    #[must_use]
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// The queues that the worker serves; only `default` unless set. Runs of other queues are left to other
    /// workers, whatever code this one has.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world).queues(["default", "reports"]).register(greet).start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn queues<Q: Into<Arc<str>>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        let mut names: Vec<Arc<str>> = queues.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        let checked = names.iter().try_for_each(|queue| check_queue(queue));
        if names.is_empty() {
            self.problem =
                Some(Error::invalid("a worker that serves no queue gets no runs; name at least one"));
        } else if names.len() > QUEUES_MAX {
            self.problem = Some(Error::invalid(format!(
                "the worker serves {} queues, the limit is {QUEUES_MAX}; start another worker for some of them",
                names.len()
            )));
        } else if let Err(reason) = checked {
            self.problem = Some(Error::invalid(reason));
        }
        self.queues = names.into();
        self
    }

    /// How many runs are held at the same time; 10,000 unless set.
    #[must_use]
    pub fn live_runs(mut self, limit: usize) -> Self {
        if limit == 0 {
            self.problem = Some(Error::invalid("`live_runs` is 0; a worker needs room for at least one run"));
        }
        self.live_max = limit;
        self
    }

    /// How many attempts at steps with `#[step(blocking)]` are under way at the same time; 128 unless
    /// set. Others wait for their turn, and their timeout counts from then.
    #[must_use]
    pub fn blocking_attempts(mut self, limit: usize) -> Self {
        self.blocking_max = limit.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// How many futures of waiting runs are kept, so that they go on without replay; 10,000 unless set.
    #[must_use]
    pub fn cached_futures(mut self, limit: usize) -> Self {
        self.cached_max = limit;
        self
    }

    /// How long the session lasts without a beat; 10 s unless set. A frozen worker's runs are taken
    /// over after this time; a dead process's at once.
    #[must_use]
    pub fn session_time(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) if time >= SESSION_MIN => self.session_time = time,
            Ok(_) => {
                self.problem =
                    Some(Error::invalid("`session_time` is too short; a session lasts at least 500ms"))
            }
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// How long the workflow's code may compute in one turn; 10 s unless set. A turn takes microseconds,
    /// since slow work belongs in steps: one that takes longer loops without awaiting or blocks its
    /// thread. Its run is then stuck, and the thread is lost until the turn returns. A long time helps when
    /// a debugger stops in workflow code.
    #[must_use]
    pub fn turn_time(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) if !time.is_zero() => self.turn_time = time,
            Ok(_) => self.problem = Some(Error::invalid("`turn_time` is 0; a turn takes some time")),
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// How long [`Worker::stop`] waits for attempts under way; 30 s unless set.
    #[must_use]
    pub fn drain(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) => self.drain = time,
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// Forgets runs so long after they ended, with their histories, inboxes, tags and keys; never unless
    /// set. Of several workers of a world with this setting one does it, by its own time, a few runs at a
    /// time beside its work.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world).register(greet).retention("30d").start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn retention(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) if !time.is_zero() => self.retention = Some(time),
            Ok(_) => {
                self.problem =
                    Some(Error::invalid("`retention` is 0; say how long runs are kept after their end"))
            }
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// Evicts and replays every run after every turn, and compares. For tests: slow, and merciless
    /// with code that is not deterministic.
    #[must_use]
    pub fn paranoid(mut self) -> Self {
        self.is_paranoid = true;
        self.cached_max = 0;
        self
    }

    /// Calls `told` whenever an attempt failed and another will follow, once that is recorded: for
    /// logs and counters. It is called where the run is worked on, so it must not block. If it panics,
    /// that is logged and changes nothing.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world)
    ///     .register(greet)
    ///     .on_retry(|about| eprintln!("{} again in {:?}: {}", about.step, about.pause, about.message))
    ///     .start()
    ///     .await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn on_retry(mut self, told: impl Fn(&RetryNotice) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(OnRetry::new(told));
        self
    }

    /// Joins the world and begins to work.
    ///
    /// # Errors
    ///
    /// When a setting makes no sense, a name is registered twice, nothing is registered, or the world
    /// cannot be joined.
    pub async fn start(self) -> Result<Worker, Error> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if !self.has_code {
            return Err(Error::invalid("the worker has no code; add it with `.register((…))`"));
        }
        let code = self.registry.finish()?;
        let step_names = code.steps();
        let settings = Arc::new(Settings {
            build: self.build.unwrap_or_else(executable_build_id).into(),
            code,
            queues: self.queues,
            codec: self.codec,
            live_max: self.live_max,
            cached_max: self.cached_max,
            session_time: self.session_time,
            drain: self.drain,
            is_paranoid: self.is_paranoid,
            part_events: self.part_events,
            on_retry: self.on_retry,
            turn_time: self.turn_time,
            meter: Arc::new(Meter::new(step_names.len())),
            outage: Arc::new(Outage::of_worker()),
            step_names,
            blocking: Arc::new(Semaphore::new(self.blocking_max)),
            retention: self.retention,
            rules: self.rules,
        });
        let stopping = CancellationToken::new();
        let session = Session::join(self.world.clone(), settings.clone(), stopping.clone()).await?;
        let current = Arc::new(Current(Mutex::new(session)));
        let local: Arc<dyn LocalWorker> = current.clone();
        LocalWorkers::of(&self.world).add(Arc::downgrade(&local));
        let starting = current.session().busy();
        let session = current.session();
        let supervisor = tokio::spawn(supervise(current.clone(), stopping.clone(), starting));
        // So that a start right after this is taken by the worker. A test in virtual time settles instead.
        if !session.clock.is_virtual() {
            tokio::select! {
                biased;
                () = session.has_claimed.cancelled() => {}
                () = session.lost.cancelled() => {}
                () = pause(FIRST_CLAIM_PATIENCE) => {}
            }
        }
        Ok(Worker { current, stopping, supervisor: Some(supervisor) })
    }
}

/// Works under one session after the other until the worker stops.
async fn supervise(current: Arc<Current>, stopping: CancellationToken, mut starting: Busy) {
    loop {
        let session = current.session();
        let beating = begin_beating(&session);
        let watching = begin_watching(&session);
        // It ends with the session.
        session.runtime.spawn(hand_back_unknown(session.clone()));
        if let Some(time) = session.settings.retention {
            // It ends with the session.
            session.runtime.spawn(forget_old(session.clone(), time));
        }
        let end = pump(&session, starting).await;
        if end == PumpEnd::Stopping {
            session.wind_down();
            tokio::select! {
                biased;
                () = session.drained() => {}
                () = say_once(&session) => {}
                () = pause(session.settings.drain) => {
                    tracing::warn!(session = %session.id, "the drain time is over; letting go of what still runs");
                }
            }
            session.abandon();
            return;
        }
        starting = session.busy();
        session.abandon();
        session.settings.meter.sessions_lost.add(1);
        drop((beating, watching));
        rejoin(&current, &session, &stopping).await;
        if stopping.is_cancelled() {
            return;
        }
    }
}

/// Says that the worker drains, without waiting for the next beat; never completes.
async fn say_once(session: &Session) {
    // If it is not heard, the next beat says it again.
    let _ = session.beat().await;
    std::future::pending().await
}

fn begin_beating(session: &Arc<Session>) -> Option<Beating> {
    // Under a virtual clock nothing expires by itself.
    if session.clock.is_virtual() {
        return None;
    }
    Beating::begin(session.clone())
        .map_err(|error| tracing::error!(%error, "cannot start the beat's thread; the session will expire"))
        .ok()
}

fn begin_watching(session: &Arc<Session>) -> Option<Watching> {
    // Under a virtual clock time does not pass while a turn is computed.
    if session.clock.is_virtual() {
        return None;
    }
    Watching::begin(session.clone(), session.settings.turn_time)
        .map_err(|error| tracing::error!(%error, "cannot start the watchdog's thread; turns may hang unseen"))
        .ok()
}

/// Leaves the lost session, so that its runs are free at once, and joins anew.
async fn rejoin(current: &Current, lost: &Arc<Session>, stopping: &CancellationToken) {
    while !stopping.is_cancelled() {
        let _ = lost.world.leave(lost.id).await;
        match Session::join(lost.world.clone(), lost.settings.clone(), stopping.clone()).await {
            Ok(session) => {
                *current.0.lock() = session;
                return;
            }
            Err(error) => {
                lost.settings.outage.failed(Call::Join, &error);
                pause(REJOIN_PAUSE).await;
            }
        }
    }
}
