//! The worker: claims runs and executes them.
//!
//! Read the modules in this order:
//!
//! 1. [`builder`], [`settings`]: what a worker is configured with. [`supervisor`]: it works under one session after the
//!    other, and joins again when a session is lost. [`signals`]: stopping on SIGTERM.
//! 2. [`session`]: the right to hold runs, and everything that exists once per session: the claim loop, the thread that
//!    renews the session, the watchdog, the list of live runs.
//! 3. [`run`]: the work on one run, from the claim or start to its release or end.
//! 4. [`attempts`]: executing the steps of a run, their heartbeats and retries.
//! 5. [`committer`]: group commit of the turns of all runs.
//! 6. [`end_without_code`]: ending runs for which the workflow's code is not needed.
//! 7. [`check`]: whether a build can continue the open runs of a world, before it is deployed.
//! 8. Shared helpers: [`read_all`], [`outage`], [`world_gone`], [`background_drops`], [`log_limit`], [`metrics`].

mod builder;
mod settings;

mod supervisor;

mod signals;

mod session;

mod run;

mod attempts;

mod committer;
pub(crate) mod stream_writer;

pub(crate) mod end_without_code;

mod check;

pub(crate) mod read_all;

pub(crate) mod outage;

mod world_gone;

mod background_drops;
mod log_limit;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{RunId, SessionId, Start, Timestamp, World, WorldError};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "sqlite")]
pub(crate) use self::attempts::panicked;
pub use self::attempts::retry_events::RetryNotice;
pub(crate) use self::attempts::{heartbeats, transaction};
pub use self::builder::WorkerBuilder;
pub use self::check::{CheckCall, CheckFinding, CheckReport, CheckedWorkflow};
pub use self::metrics::{Metrics, Times};
use self::session::Session;
pub(crate) use self::session::retention;
use self::settings::Settings;
use crate::client::local_workers::{LocalWorker, LocalWorkers, TakenStart};
use crate::clock::pause;
use crate::error::Error;
use crate::telemetry::WorkerGauges;
pub(crate) use run::pending_retry::without_earlier_requests;

/// The pause between two checks whether a worker that has lost its session has joined again.
const REJOIN_CHECK_PAUSE: Duration = Duration::from_millis(50);

/// How long the start of a worker waits for its first claim. The worker starts even if the claim takes longer.
const FIRST_CLAIM_TIMEOUT: Duration = Duration::from_secs(1);

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
    current: Arc<CurrentSession>,
    stopping: CancellationToken,
    supervisor: Option<JoinHandle<()>>,
}

/// The current session of a worker. When a session is lost, the supervisor replaces it by a new one.
#[derive(Debug)]
struct CurrentSession(Mutex<Arc<Session>>);

impl CurrentSession {
    fn session(&self) -> Arc<Session> {
        self.0.lock().clone()
    }
}

impl LocalWorker for CurrentSession {
    fn take(&self, start: Start) -> Result<TakenStart, Start> {
        let answer = self.session().take_start(start)?;
        Ok(Box::pin(async move {
            let stopped =
                || WorldError::Unavailable("the worker stopped before the start was committed".into());
            answer.await.unwrap_or_else(|_| Err(stopped()))
        }))
    }

    fn holds(&self, run: RunId) -> bool {
        self.session().holds(run)
    }

    fn commit_error(&self, run: RunId) -> Option<String> {
        self.session().committer.uncommitted.error(run)
    }

    fn gauges(&self) -> WorkerGauges {
        let session = self.session();
        WorkerGauges {
            build: session.settings.build.clone(),
            live_runs: session.live_count() as u64,
            live_runs_limit: session.settings.live_max as u64,
            cached_futures: session.cache.lock().len() as u64,
        }
    }

    fn check(&self, start: &Start) -> Option<Result<(), String>> {
        let session = self.session();
        let Settings { code, codec, .. } = &*session.settings;
        let checked = code.check(&start.workflow, start.version, start.input.clone(), &**codec)?;
        Some(checked.map_err(|error| error.message().to_owned()))
    }
}

impl Worker {
    /// Returns a builder for a worker of a world. Add the code with [`register`](WorkerBuilder::register).
    pub fn builder(world: Arc<dyn World>) -> WorkerBuilder<()> {
        WorkerBuilder::new(world)
    }

    /// Starts the work under a session that has joined.
    async fn start(session: Arc<Session>, stopping: CancellationToken) -> Self {
        let busy = session.busy();
        let current = Arc::new(CurrentSession(Mutex::new(session.clone())));
        let local: Arc<dyn LocalWorker> = current.clone();
        LocalWorkers::of(&session.settings.client_world(&session.world)).add(Arc::downgrade(&local));
        let supervisor = tokio::spawn(supervisor::supervise(current.clone(), stopping.clone(), busy));
        // Starts that follow are taken by this worker only after its first claim. Under virtual time, tests wait
        // for that themselves.
        if !session.clock.is_virtual() {
            tokio::select! {
                biased;
                () = session.has_claimed.cancelled() => {}
                () = session.lost.cancelled() => {}
                () = pause(FIRST_CLAIM_TIMEOUT) => {}
            }
        }
        Self { current, stopping, supervisor: Some(supervisor) }
    }

    /// Returns the id of the worker's current session. After a session is lost, the worker gets another one.
    pub fn session(&self) -> SessionId {
        self.current.session().id
    }

    /// Returns counters of the worker's activity: the size and duration of its commits, the number of replayed runs,
    /// and so on.
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

    /// Waits until the worker holds no run and the world has none that is ready for it. Returns the time at which the
    /// next run is due; `None` if there is none that waits for a time.
    ///
    /// Runs that are started, sent to or due later do not count: the worker continues with them as usual.
    ///
    /// # Errors
    ///
    /// When the worker is stopping, or [has stopped by itself](Self::failed).
    pub async fn idle(&self) -> Result<Option<Timestamp>, Error> {
        loop {
            let session = self.current.session();
            tokio::select! {
                biased;
                () = session.stopping.cancelled() => return Err(Error::msg("the worker is stopping")),
                error = session.settings.world_gone.wait() => return Err(error.into()),
                () = session.lost.cancelled() => pause(REJOIN_CHECK_PAUSE).await,
                next_due = session.idle() => return Ok(next_due),
            }
        }
    }

    /// Waits until the worker stops by itself, and returns the cause: the storage of its world is gone, because the
    /// SQLite file was moved or removed, or the Postgres schema was dropped. Never completes otherwise: an outage does
    /// not stop a worker.
    ///
    /// A program that does nothing but work calls [`run_until_signal`](Self::run_until_signal), which returns this
    /// error. A service that does other work as well waits for both:
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # async fn serve_requests() -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world).register(greet).start().await?;
    /// tokio::select! {
    ///     error = worker.failed() => return Err(error),
    ///     served = serve_requests() => served?,
    /// }
    /// worker.stop().await
    /// # }
    /// ```
    pub async fn failed(&self) -> Error {
        let settings = self.current.session().settings.clone();
        settings.world_gone.wait().await.into()
    }

    /// Stops the worker: claims nothing more, waits for running attempts, releases every run, drops the futures of
    /// waiting runs, and leaves the world. It waits for at most the [drain time](WorkerBuilder::drain); futures that
    /// are not dropped by then are dropped in the background.
    ///
    /// # Errors
    ///
    /// When the world cannot end the session. Other workers then continue its runs after the session has expired. If the
    /// worker [has stopped by itself](Self::failed), the cause.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stopping.cancel();
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.await.map_err(|error| Error::msg(format!("the worker's task failed: {error}")))?;
        }
        let session = self.current.session();
        session.settings.check_world()?;
        // Another worker delivers what is not delivered here.
        let _ = session.deliver().await;
        session.world.leave(session.id).await?;
        Ok(())
    }

    /// Renews the session now. For tests: under a virtual clock, sessions are not renewed by themselves.
    ///
    /// # Errors
    ///
    /// When the world refuses.
    #[cfg(any(test, feature = "test-support"))]
    pub async fn beat(&self) -> Result<(), Error> {
        self.current.session().beat().await?;
        Ok(())
    }

    /// Stops as if the process had been killed: without draining, and without ending the session. For tests.
    #[cfg(any(test, feature = "test-support"))]
    pub fn crash(mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            supervisor.abort();
        }
        self.current.session().abandon();
    }

    /// [Crashes](Self::crash), and starts another worker with the same settings. `on_crash` is called in between with
    /// the session of the crashed worker. For the test world of `outlast-testkit`.
    ///
    /// # Errors
    ///
    /// When the world cannot be joined.
    #[cfg(any(test, feature = "test-support"))]
    pub async fn replace_after_crash(self, on_crash: impl FnOnce(SessionId)) -> Result<Self, Error> {
        let session = self.current.session();
        self.crash();
        on_crash(session.id);
        let (world, settings, stopping) =
            (session.world.clone(), session.settings.clone(), CancellationToken::new());
        drop(session);
        let session = Session::join(world, settings, stopping.clone()).await?;
        Ok(Self::start(session, stopping).await)
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
