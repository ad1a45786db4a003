//! The builder of a worker: its settings and its code.

mod build_id;
mod by_handle;
mod client;
#[cfg(feature = "http")]
mod http;
mod public_url;
#[cfg(any(test, feature = "test-support"))]
mod test_support;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::event::RULES;
use outlast_core::limits::{
    BLOCKING_ATTEMPTS_DEFAULT, CACHED_FUTURES_DEFAULT, LIVE_RUNS_DEFAULT, PART_EVENTS_MAX, QUEUES_MAX,
    SESSION_DEFAULT, SESSION_MIN, TURN_TIME_DEFAULT,
};
use outlast_core::queue::{BUILT_IN_QUEUE, check_queue, default_queues};
use outlast_core::{Codec, FailureStrategy, IntoDuration, PlainJson, Timestamp, World};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::build_id::executable_build_id;
use super::Worker;
use super::attempts::retry_events::{OnRetry, RetryNotice};
use super::background_drops::BackgroundDrops;
use super::check::{CheckCall, CheckedCode};
use super::log_limit::RunLogs;
use super::metrics::Meter;
use super::outage::Outage;
use super::session::Session;
use super::session::definitions::WorkflowSchemas;
use super::session::retention::RetentionTimes;
use super::settings::Settings;
use super::world_gone::WorldGone;
use crate::authoring::register::{CodeFor, Registrable};
use crate::authoring::registry::Registry;
use crate::authoring::transactional::attempts_default;
use crate::bulk::{BULK_PAGE, bulk_page};
use crate::client::local_workers::LocalWorkers;
use crate::error::Error;

const DRAIN_DEFAULT: Duration = Duration::from_secs(30);

/// Configures a worker and starts it; from [`Worker::builder`].
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
    transactional_max: Option<usize>,
    retention: RetentionTimes,
    schemas: Vec<WorkflowSchemas>,
    rules: u32,
    local_world: Option<Arc<dyn World>>,
    #[cfg(feature = "http")]
    fetch: crate::http::FetchSettings,
    problem: Option<Error>,
}

impl WorkerBuilder<()> {
    /// Returns a builder with the default settings and without code.
    pub(super) fn new(world: Arc<dyn World>) -> Self {
        Self {
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
            transactional_max: None,
            retention: RetentionTimes::default(),
            schemas: Vec::new(),
            rules: RULES,
            local_world: None,
            #[cfg(feature = "http")]
            fetch: crate::http::FetchSettings::default(),
            problem: None,
        }
    }

    /// Sets the state that steps access through [`StepContext::state`](crate::StepContext::state). Call it before
    /// [`register`](WorkerBuilder::register).
    ///
    /// # Panics
    ///
    /// When code was registered already.
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
            transactional_max: self.transactional_max,
            retention: self.retention,
            schemas: self.schemas,
            rules: self.rules,
            local_world: self.local_world,
            #[cfg(feature = "http")]
            fetch: self.fetch,
            problem: self.problem,
        }
    }

    /// Serves only the queue of built-in workflows, such as those of [durable bulk calls](crate::DurableBulkCall), and
    /// needs no code. Servers have such a worker.
    #[must_use]
    pub fn only_built_ins(mut self) -> Self {
        self.has_code = true;
        self.queues = Arc::new([BUILT_IN_QUEUE.into()]);
        self
    }

    /// Sets the codec that encodes and decodes all payloads. Clients of the same runs must use the same codec. Call it
    /// before [`state`](Self::state) and [`register`](WorkerBuilder::register).
    ///
    /// # Panics
    ///
    /// When code was registered already.
    #[must_use]
    pub fn codec(self, codec: impl Codec + 'static) -> Self {
        assert!(!self.has_code, "call `.codec(…)` before `.register(…)`");
        self.shared_codec(Arc::new(codec))
    }

    pub(crate) fn shared_codec(mut self, codec: Arc<dyn Codec>) -> Self {
        self.codec = codec;
        self.registry = Registry::new(Arc::new(()), self.codec.clone());
        self
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Adds code: a function with `#[workflow]` or `#[step]`, or a tuple of up to 24 of them, or of tuples. Repeated
    /// calls add up.
    #[must_use]
    pub fn register<R: Registrable<M>, M>(mut self, code: R) -> Self
    where
        R::Code: CodeFor<S>,
    {
        drop(code);
        R::Code::add_to(&mut self.registry);
        self.has_code = true;
        self
    }

    /// Names the build, which identifies this version of the code. The default is the build id that the linker wrote
    /// into the executable, or a hash of the executable's contents if there is none. Another build retries runs that
    /// are stuck with this one.
    #[must_use]
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// Sets the queues that the worker serves; the default is only `default`. The worker does not claim runs of other
    /// queues, even if it has their code.
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
            self.problem = Some(Error::invalid(
                "the worker serves no queue, so it would get no runs; name at least one in `queues`",
            ));
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

    /// Sets the maximum number of runs that the worker holds at the same time; the default is 10,000.
    #[must_use]
    pub fn live_runs(mut self, limit: usize) -> Self {
        if limit == 0 {
            self.problem = Some(Error::invalid("`live_runs` is 0; set it to at least 1"));
        }
        self.live_max = limit;
        self
    }

    /// Sets the maximum number of concurrent attempts at steps with `#[step(blocking)]`; the default is 128. Other
    /// attempts wait, and their timeout starts after the wait.
    #[must_use]
    pub fn blocking_attempts(mut self, limit: usize) -> Self {
        self.blocking_max = limit.clamp(1, Semaphore::MAX_PERMITS);
        self
    }

    /// Sets the maximum number of concurrent attempts at steps with `#[step(transactional)]`. Other attempts wait, and
    /// their timeout starts after the wait. The default on Postgres is the number of connections for them
    /// (`transactions` in the URL, 8 unless it is given); on SQLite, where waiting steps share a transaction, it is 128.
    #[must_use]
    pub fn transactional_attempts(mut self, limit: usize) -> Self {
        self.transactional_max = Some(limit.clamp(1, Semaphore::MAX_PERMITS));
        self
    }

    /// Sets the maximum number of futures of waiting runs that are kept in memory, so that the runs continue without a
    /// replay; the default is 10,000.
    #[must_use]
    pub fn cached_futures(mut self, limit: usize) -> Self {
        self.cached_max = limit;
        self
    }

    /// Sets the time after which the session expires if it is not renewed; the default is 10 s. Other workers take over
    /// the runs of a frozen worker after this time, and those of a dead process at once.
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

    /// Sets the maximum time that the workflow's code may take to compute one turn; the default is 10 s. A turn takes
    /// microseconds, since slow work belongs in steps. A turn that exceeds the limit loops without awaiting, or blocks
    /// its thread: its run becomes stuck, and the thread is not available until the turn returns. Set a long time when
    /// you debug workflow code with breakpoints.
    #[must_use]
    pub fn turn_time(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) if !time.is_zero() => self.turn_time = time,
            Ok(_) => {
                self.problem =
                    Some(Error::invalid("`turn_time` is 0; set the maximum time of a turn, such as \"10s\""))
            }
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// Sets the maximum time that [`Worker::stop`] waits for running attempts, and for futures of waiting runs to be
    /// dropped; the default is 30 s.
    #[must_use]
    pub fn drain(mut self, time: impl IntoDuration) -> Self {
        match time.into_duration() {
            Ok(time) => self.drain = time,
            Err(error) => self.problem = Some(error.into()),
        }
        self
    }

    /// Deletes runs when this time has passed since their end, with their histories, inboxes, tags and keys. By
    /// default, runs are not deleted. If several workers of a world have this setting, one of them deletes, by its own
    /// setting, in small batches.
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
        match retention_time("`retention`", time) {
            Ok(time) => self.retention.others = Some(time),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// Like [`retention`](Self::retention), for the runs of one workflow, which are then kept for this time, longer or
    /// shorter than others. Without [`retention`](Self::retention), the runs of other workflows are kept forever. The
    /// runs of a queued step `charge` are those of the workflow `step:charge`.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn poll(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// # #[workflow] async fn payout(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world)
    ///     .register((poll, payout))
    ///     .retention("30d")
    ///     .retention_of("poll", "1d")
    ///     .retention_of("payout", "3650d")
    ///     .start()
    ///     .await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn retention_of(mut self, workflow: &str, time: impl IntoDuration) -> Self {
        match retention_time(&format!("the retention of `{workflow}`"), time) {
            Ok(_) if workflow.is_empty() => {
                let message = "`retention_of` has an empty name; pass the name of a workflow";
                self.problem = Some(Error::invalid(message));
            }
            Ok(time) => drop(self.retention.of_workflow.insert(workflow.into(), time)),
            Err(problem) => self.problem = Some(problem),
        }
        self
    }

    /// Stores the JSON Schemas of a workflow's input and output with its definition when the worker joins. The dashboard
    /// makes a form of the input's schema, also in another process and while no worker is joined. Schemas larger than
    /// 16 KiB are left out. Requires the feature `schema`.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Order {
    ///     cents: u32,
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context, order: Order) -> Result<u32, Error> {
    ///     Ok(order.cents)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world).register(checkout).describe(checkout).start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn describe<H: crate::HasSchema<M>, M>(mut self, workflow: H) -> Self {
        let crate::Schema { name, version, input, output } = workflow.schema();
        match version {
            Some(version) => self.schemas.push(WorkflowSchemas { workflow: name, version, input, output }),
            None => {
                self.problem =
                    Some(Error::invalid(format!("`{name}` is a step; describe workflows, not steps")));
            }
        }
        self
    }

    /// Sets how many earlier generations of a run stay readable when it [continues](crate::Context::continue_as); the
    /// default is 1. Older ones are deleted, in batches of about 1,000 events, except for the start of the run and
    /// payloads that no hook has taken. Skipped iterations of [`iterate`](crate::Context::iterate) are deleted as well.
    #[must_use]
    pub fn keep_generations(mut self, generations: usize) -> Self {
        self.registry.keep_generations(generations);
        self
    }

    /// Sets what happens when a run fails, for workflows that have no
    /// [`on_failure`](macro@crate::workflow) of their own. The default is [`FailureStrategy::Fail`].
    ///
    /// A strategy that the start of a run has recorded is not changed by this setting.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn sync(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// # async fn serve(world: std::sync::Arc<dyn outlast::World>) -> Result<(), Error> {
    /// use outlast::FailureStrategy;
    ///
    /// let worker = Worker::builder(world).register(sync).on_failure(FailureStrategy::Quarantine).start().await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn on_failure(mut self, strategy: FailureStrategy) -> Self {
        self.registry.set_default_strategy(strategy);
        self
    }

    /// Replays every run after every turn, and compares the result with the live run. For tests: it is slow, and it
    /// detects code that is not deterministic.
    #[must_use]
    pub fn paranoid(mut self) -> Self {
        self.is_paranoid = true;
        self.cached_max = 0;
        self
    }

    /// Calls `listener` for every attempt that failed and is followed by another, after the commit that records the
    /// retry: for logs and counters. The listener is called on the task of the run, so it must not block. If it
    /// panics, the panic is logged and has no other effect.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> { Ok(name) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let worker = Worker::builder(world)
    ///     .register(greet)
    ///     .on_retry(|retry| eprintln!("retrying {} in {:?}: {}", retry.step, retry.pause, retry.message))
    ///     .start()
    ///     .await?;
    /// # worker.stop().await
    /// # }
    /// ```
    #[must_use]
    pub fn on_retry(mut self, listener: impl Fn(&RetryNotice) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(OnRetry::new(listener));
        self
    }

    /// Joins the world and starts the worker.
    ///
    /// # Errors
    ///
    /// When a setting is invalid, a name is registered twice, no code is registered, a step is transactional and the
    /// world has no such transactions, or the world cannot be joined.
    pub async fn start(mut self) -> Result<Worker, Error> {
        self.check_settings()?;
        self.add_built_in_steps();
        let code = self.registry.finish()?;
        code.check_transactions(&*self.world)?;
        let transactional_max = self.transactional_max.unwrap_or_else(|| attempts_default(&*self.world));
        let step_names = code.steps();
        let metrics = LocalWorkers::of(self.local_world.as_ref().unwrap_or(&self.world)).metrics.clone();
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
            outage: Arc::new(Outage::of_worker(metrics.clone())),
            metrics,
            world_gone: WorldGone::default(),
            run_logs: RunLogs::default(),
            drops: Arc::new(BackgroundDrops::new(Handle::current(), self.world.clock())),
            step_names,
            blocking_permits: Arc::new(Semaphore::new(self.blocking_max)),
            transactional_permits: Arc::new(Semaphore::new(transactional_max)),
            retention: self.retention,
            schemas: self.schemas,
            rules: self.rules,
            local_world: self.local_world,
        });
        let stopping = CancellationToken::new();
        let session = Session::join(self.world, settings, stopping.clone()).await?;
        session.log_joined();
        Ok(Worker::start(session, stopping).await)
    }

    /// Replays all open runs of the world with this code, and reports which of them a worker with this code could
    /// continue. Nothing in the world changes: no session is joined, and nothing is written. Use it before a deploy, on
    /// the production world.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn charge(cents: u64) -> Result<(), StepError> { Ok(()) }
    /// # #[workflow] async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> { ctx.step(charge, cents).await }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # Client::new(world.clone()).start(checkout, 7).await?;
    /// let report = Worker::builder(world).register((checkout, charge)).check().await?;
    /// println!("{report}");
    /// assert!(report.is_ok());
    /// # assert_eq!(report.continued(), 1);
    /// # Ok(()) }
    /// ```
    ///
    /// A run is replayed as of when it is read; the messages that it has not read yet are not delivered. Reads and
    /// replays are made in batches, so the memory does not grow with the number of runs.
    ///
    /// # Errors
    ///
    /// When a setting is invalid, a name is registered twice, no code is registered, or the world does not respond.
    pub fn check(self) -> CheckCall {
        CheckCall::new(self.into_checked_code())
    }

    fn into_checked_code(mut self) -> Result<CheckedCode, Error> {
        self.check_settings()?;
        self.add_built_in_steps();
        let code = self.registry.finish()?;
        code.check_transactions(&*self.world)?;
        Ok(CheckedCode { code, codec: self.codec, world: self.world })
    }

    /// Adds the steps that every worker has.
    fn add_built_in_steps(&mut self) {
        self.registry.add_other_run_steps();
        #[cfg(feature = "http")]
        self.add_fetch();
        self.registry.add_step_of(BULK_PAGE, bulk_page);
    }

    fn check_settings(&mut self) -> Result<(), Error> {
        match self.problem.take() {
            Some(problem) => Err(problem),
            None if !self.has_code => {
                Err(Error::invalid("the worker has no code; add it with `.register((…))`"))
            }
            None => Ok(()),
        }
    }

    /// Joins the world, executes all runs that are ready until the worker is [idle](Worker::idle), and stops: for
    /// programs that are started by a timer or a request and do not keep running. Returns the time at which the next
    /// run is due; `None` if there is none that waits for a time.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn greet(ctx: Context, name: String) -> Result<String, Error> {
    /// #     ctx.sleep("1h").await?;
    /// #     Ok(name)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// let run = Client::new(world.clone()).start(greet, "Ada").await?;
    /// let next = Worker::builder(world).register(greet).run_until_idle().await?;
    /// assert_eq!(next, run.view().await?.wake_at); // in an hour: call it again then
    /// # assert!(next.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), [`Worker::idle`] and [`Worker::stop`].
    pub async fn run_until_idle(self) -> Result<Option<Timestamp>, Error> {
        let worker = self.start().await?;
        let next = worker.idle().await?;
        worker.stop().await?;
        Ok(next)
    }
}

/// How long runs are kept. Refuses a text that is not a duration, and 0, which could delete a run before its output is
/// read.
fn retention_time(what: &str, time: impl IntoDuration) -> Result<Duration, Error> {
    match time.into_duration()? {
        Duration::ZERO => {
            let remedy = "set how long runs are kept after their end, such as \"30d\"";
            Err(Error::invalid(format!("{what} is 0; {remedy}")))
        }
        time => Ok(time),
    }
}
