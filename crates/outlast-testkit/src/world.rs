//! A world for tests of complete workflows: virtual time, a worker, and mocks of steps.

mod crash;
mod schedules;
mod timeout_report;
mod webhooks;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use outlast::sqlite::SqliteWorld;
use outlast::test_support::rehearse::PUBLIC_URL;
use outlast::{
    Client, Error, MemoryWorld, Register, RunHandle, RunId, RunView, Status, StepError, StepHandle, Wait,
    Worker, WorkerBuilder,
};
use outlast_core::{Busy, IntoDuration, SessionId, Timestamp, World};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

pub use self::crash::CrashPoint;
use self::crash::{Crashes, CrashingWorld};
use self::timeout_report::{AwaitedState, PastWaits};
use crate::TestClock;

/// The maximum number of clock advances while waiting for a run. More mean an endless loop of sleeps.
const ADVANCES_MAX: usize = 10_000;

/// A world under virtual time, with a worker and a client: a workflow that sleeps for a year is tested
/// in a moment.
///
/// Unlike in a [`Rehearsal`](crate::Rehearsal), everything but the time is real: steps run, are retried
/// and time out, runs wait in a world and are replayed. Mock the steps that must not run in a test.
///
/// The worker replays each run after every turn and compares the kind, name and order of its operations
/// (not their inputs), so code that is not deterministic is detected; see
/// [`trusting`](TestWorldBuilder::trusting).
///
/// ```
/// use outlast::prelude::*;
/// use outlast_testkit::TestWorld;
///
/// #[step]
/// async fn charge(cents: u64) -> Result<String, StepError> {
///     Err(StepError::msg(format!("there is no bank to pay {cents} to")))
/// }
///
/// #[workflow]
/// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
///     let payment = ctx.step(charge, cents).await?;
///     let approved = ctx.hook::<bool>("review").timeout("3d").await?;
///     ctx.sleep("365d").await?;
///     Ok(format!("{payment}, approved: {approved}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let world = TestWorld::builder()
///     .register((checkout, charge))
///     .mock(charge, |cents| Ok(format!("payment of {cents}")))
///     .start()
///     .await;
/// let run = world.client().start(checkout, 4200).await?;
/// world.wait_for_hook(&run, "review").await;
/// run.send("review", &true).await?;
/// assert_eq!(world.run_until_done(&run).await?, "payment of 4200, approved: true");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TestWorld {
    clock: TestClock,
    world: Arc<dyn World>,
    client: Client,
    worker: Arc<CurrentWorker>,
    crashes: Arc<Crashes>,
    replacing: JoinHandle<()>,
    // Deleted when the test is over.
    _folder: Option<TempDir>,
}

impl TestWorld {
    /// A builder for a world in memory.
    pub fn builder() -> TestWorldBuilder<()> {
        let clock = TestClock::new();
        let world = Arc::new(MemoryWorld::new(Arc::new(clock.clone())));
        TestWorldBuilder { clock, worker: Worker::builder(world), is_trusting: false, folder: None }
    }

    /// The client: starts runs, sends to them, cancels and inspects them.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The clock that the test moves.
    pub fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// The world itself, for a second client or worker.
    pub fn world(&self) -> Arc<dyn World> {
        self.world.clone()
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Waits until no work is in progress. Time does not pass.
    pub async fn settle(&self) {
        self.clock.settle().await;
    }

    /// Advances the clock by `time`, and executes everything that is due meanwhile.
    ///
    /// # Panics
    ///
    /// When `time` is a text that is not a duration.
    #[track_caller]
    pub fn advance(&self, time: impl IntoDuration) -> impl Future<Output = ()> {
        let time = match time.into_duration() {
            Ok(time) => time,
            Err(error) => panic!("{error}"),
        };
        async move {
            // Earlier requests are executed first, at the current time.
            self.settle().await;
            self.advance_to(self.now().plus(time)).await;
        }
    }

    /// Advances the clock to `moment`, and executes everything that is due until then.
    pub async fn advance_to(&self, moment: Timestamp) {
        self.clock.run_until(moment).await;
        self.settle().await;
    }

    /// Advances the clock until nothing is due any more. With a workflow that sleeps in an endless loop
    /// this never returns.
    pub async fn run_until_idle(&self) {
        self.clock.run_until_idle().await;
    }

    /// Advances the clock until the run has ended, and returns its output.
    ///
    /// # Errors
    ///
    /// The workflow's own error when it failed or was cancelled.
    ///
    /// # Panics
    ///
    /// When the run is stuck, sleeps in an endless loop, or waits for something other than time. The message explains
    /// why, also for the children that it waits for.
    #[track_caller]
    pub fn run_until_done<O: DeserializeOwned>(
        &self,
        run: &RunHandle<O>,
    ) -> impl Future<Output = Result<O, Error>> {
        let awaited = AwaitedState::here("its end");
        async move {
            self.run_until(run, awaited, |view| view.status.is_final().then_some(())).await;
            run.output().await
        }
    }

    /// Advances the clock until the run waits for a payload for this hook. If it already does, no time passes.
    ///
    /// # Panics
    ///
    /// When the run ends before that, is stuck, or waits for something other than time. The message explains why, and
    /// what the run waited for meanwhile.
    #[track_caller]
    pub fn wait_for_hook<O>(&self, run: &RunHandle<O>, hook: impl AsRef<str>) -> impl Future<Output = ()> {
        let awaited = AwaitedState::here(format!("hook `{}`", hook.as_ref()));
        async move {
            let is_open = |wait: &Wait| matches!(wait, Wait::Hook { name, .. } if **name == *hook.as_ref());
            self.run_until(run, awaited, |view| view.waits.iter().any(is_open).then_some(())).await;
        }
    }

    /// Advances the clock until the run sleeps, and returns the time until which it sleeps. If it already does, no time
    /// passes.
    ///
    /// # Panics
    ///
    /// As [`wait_for_hook`](Self::wait_for_hook).
    #[track_caller]
    pub fn wait_for_sleep<O>(&self, run: &RunHandle<O>) -> impl Future<Output = Timestamp> {
        let awaited = AwaitedState::here("a timer");
        let due = |wait: &Wait| if let Wait::Timer { until, .. } = wait { Some(*until) } else { None };
        async move { self.run_until(run, awaited, |view| view.waits.iter().find_map(due)).await }
    }

    /// Crashes the worker when it reaches this point, as if its process was killed. Another worker joins at once, with
    /// the same code, and continues the runs. No time passes.
    ///
    /// Several calls plan several crashes. Check with [`crashes`](Self::crashes) that they have happened.
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use outlast::prelude::*;
    /// use outlast_testkit::{CrashPoint, TestWorld};
    ///
    /// # static CALLS: AtomicU32 = AtomicU32::new(0);
    /// #[step]
    /// async fn charge(cx: StepContext, cents: u64) -> String {
    ///     # CALLS.fetch_add(1, Ordering::Relaxed);
    ///     format!("paid {cents} with {}", cx.key()) // a real step passes the key to the bank
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ///     ctx.step(charge, cents).await
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// let world = TestWorld::builder().register((checkout, charge)).start().await;
    /// world.crash_worker(CrashPoint::after_effect_of(charge));
    /// let run = world.client().start(checkout, 4200).await?;
    /// // The step was attempted twice, with the same key.
    /// assert_eq!(world.run_until_done(&run).await?, format!("paid 4200 with {}.0.0", run.id()));
    /// # assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    /// assert_eq!(world.crashes(), 1);
    /// # world.stop().await }
    /// ```
    pub fn crash_worker(&self, point: CrashPoint) {
        self.crashes.plan(point);
    }

    /// Crashes the worker now, as if its process was killed, and waits until another one has joined and no work is in
    /// progress. No time passes.
    pub async fn crash_worker_now(&self) {
        self.settle().await;
        let session = self.worker.lock().as_ref().map(Worker::session);
        if let Some(session) = session {
            self.crashes.crash(session);
        }
        self.settle().await;
    }

    /// The number of times that the worker has crashed.
    pub fn crashes(&self) -> usize {
        self.crashes.count()
    }

    /// The events of the commit at which the worker crashed; `None` if it has not crashed at a commit.
    pub(crate) fn crashed_commit(&self) -> Option<String> {
        self.crashes.crashed_commit()
    }

    /// Explains why a run does not continue.
    pub(crate) async fn explain(&self, run: RunId) -> String {
        timeout_report::explain(&self.client, run).await
    }

    /// Stops the worker.
    ///
    /// # Errors
    ///
    /// As [`Worker::stop`].
    ///
    /// # Panics
    ///
    /// If a planned crash has not happened, because the worker did not reach its point.
    pub async fn stop(self) -> Result<(), Error> {
        let planned = self.crashes.planned();
        assert!(
            planned == 0,
            "{planned} planned crashes did not happen: the worker did not reach their points"
        );
        self.settle().await;
        let worker = self.worker.lock().take();
        match worker {
            Some(worker) => worker.stop().await,
            None => Ok(()),
        }
    }

    /// Goes from one moment at which something is due to the next, until the run is as wanted.
    async fn run_until<O, T>(
        &self,
        run: &RunHandle<O>,
        awaited: AwaitedState,
        is_reached: impl Fn(&RunView) -> Option<T>,
    ) -> T {
        let mut past_waits = PastWaits::default();
        for _ in 0..ADVANCES_MAX {
            self.settle().await;
            let view = match run.view().await {
                Ok(view) => view,
                Err(error) => awaited.fail(run.id(), &error.to_string()),
            };
            if let Some(found) = is_reached(&view) {
                return found;
            }
            past_waits.add(&view.waits);
            let is_over = view.status.is_final() || view.status == Status::Stuck;
            match self.clock.next_sleeper() {
                Some(next) if !is_over => self.clock.advance_to(next),
                _ => {
                    let why = timeout_report::explain(&self.client, view.id).await;
                    awaited.fail(view.id, &(why + &past_waits.except(&view.waits)));
                }
            }
        }
        let now = self.now();
        let why = format!("it sleeps in a loop: the clock was advanced {ADVANCES_MAX} times, to {now}");
        awaited.fail(run.id(), &(why + &past_waits.except(&[])))
    }
}

impl Drop for TestWorld {
    fn drop(&mut self) {
        self.replacing.abort();
    }
}

/// The current worker of a test world; `None` while a crashed one is being replaced.
type CurrentWorker = Mutex<Option<Worker>>;

/// Replaces each worker that crashes by another one.
async fn replace_workers(
    current: Arc<CurrentWorker>,
    world: Arc<dyn World>,
    crashes: Arc<Crashes>,
    mut requests: Receiver<Busy>,
) {
    while let Some(busy) = requests.recv().await {
        let crashed = current.lock().take();
        let Some(crashed) = crashed else { continue };
        match crashed.replace_after_crash(|session| kill(&*world, session)).await {
            Ok(replacement) => *current.lock() = Some(replacement),
            Err(error) => {
                panic!("the worker crashed as planned, and its replacement does not start: {error}")
            }
        }
        crashes.replaced();
        drop(busy);
    }
}

/// Tells the world that the process of a session is gone.
fn kill(world: &dyn World, session: SessionId) {
    let any: &dyn Any = world;
    if let Some(memory) = any.downcast_ref::<MemoryWorld>() {
        memory.kill(session);
    }
    if let Some(sqlite) = any.downcast_ref::<SqliteWorld>() {
        sqlite.kill(session);
    }
}

/// The builder of a [`TestWorld`].
#[must_use = "nothing runs until the world is started"]
pub struct TestWorldBuilder<S> {
    clock: TestClock,
    worker: WorkerBuilder<S>,
    is_trusting: bool,
    folder: Option<TempDir>,
}

impl TestWorldBuilder<()> {
    /// The state that steps access with `cx.state()`. Call this before [`register`](TestWorldBuilder::register).
    pub fn state<S: Send + Sync + 'static>(self, state: S) -> TestWorldBuilder<S> {
        let Self { clock, worker, is_trusting, folder } = self;
        TestWorldBuilder { clock, worker: worker.state(state), is_trusting, folder }
    }
}

impl<S: Send + Sync + 'static> TestWorldBuilder<S> {
    /// Adds code, as [`WorkerBuilder::register`] does.
    pub fn register<R: Register<S, M>, M>(mut self, code: R) -> Self {
        self.worker = self.worker.register(code);
        self
    }

    /// Runs `code` instead of the step's own, which need not be registered. Its result is handled as usual: an error is
    /// followed by another attempt, unless it is fatal or the attempts are used up.
    pub fn mock<H, M>(
        mut self,
        step: H,
        code: impl Fn(H::Input) -> Result<H::Output, StepError> + Send + Sync + 'static,
    ) -> Self
    where
        H: StepHandle<M>,
        H::Input: DeserializeOwned,
        H::Output: Serialize,
    {
        self.worker = self.worker.mock(step, code);
        self
    }

    /// Uses a SQLite file in a temporary folder instead of memory.
    ///
    /// # Panics
    ///
    /// When no temporary folder can be created.
    #[track_caller]
    pub fn on_sqlite(mut self) -> Self {
        match TempDir::with_prefix("outlast-") {
            Ok(folder) => self.folder = Some(folder),
            Err(error) => panic!("{error}"),
        }
        self
    }

    /// Sets other options of the worker:
    /// `.worker(|worker| worker.live_runs(10))`.
    pub fn worker(mut self, settle: impl FnOnce(WorkerBuilder<S>) -> WorkerBuilder<S>) -> Self {
        self.worker = settle(self.worker);
        self
    }

    /// Caches the futures of runs, as workers do in production, instead of replaying each run after every turn. Faster
    /// for runs with thousands of steps.
    pub fn trusting(mut self) -> Self {
        self.is_trusting = true;
        self
    }

    /// Opens the world and starts the worker.
    ///
    /// # Panics
    ///
    /// When the worker does not start; the message contains the reason.
    #[track_caller]
    pub fn start(self) -> impl Future<Output = TestWorld> {
        let location = Location::caller();
        async move {
            match self.try_start().await {
                Ok(world) => world,
                Err(error) => panic!("the test world of {location} does not start: {error}"),
            }
        }
    }

    async fn try_start(self) -> Result<TestWorld, Error> {
        let url = match &self.folder {
            Some(folder) => format!("sqlite:{}/runs.db", folder.path().display()),
            None => "memory:".to_owned(),
        };
        let world = outlast::open_with_clock(&url, Arc::new(self.clock.clone())).await?;
        let (crashes, requests) = Crashes::new(Arc::new(self.clock.clone()));
        let crashing = CrashingWorld { inner: world.clone(), crashes: crashes.clone() };
        let worker =
            self.worker.on(Arc::new(crashing)).local_to(world.clone()).default_public_url(PUBLIC_URL);
        let worker = if self.is_trusting { worker } else { worker.paranoid() };
        let worker = Arc::new(Mutex::new(Some(worker.start().await?)));
        let client = Client::new(world.clone());
        let replacing = replace_workers(worker.clone(), world.clone(), crashes.clone(), requests);
        let replacing = tokio::spawn(replacing);
        Ok(TestWorld { clock: self.clock, world, client, worker, crashes, replacing, _folder: self.folder })
    }
}

impl<S> fmt::Debug for TestWorldBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestWorldBuilder").field("clock", &self.clock).finish_non_exhaustive()
    }
}
