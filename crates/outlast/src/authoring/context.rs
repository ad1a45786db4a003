//! The context: the operations that a workflow can request.

use std::future::Future;
use std::sync::Arc;

use outlast_core::{Codec, Headers, IntoDuration, Payload, Policy, RunId, Tags, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::hook::HookName;
use crate::authoring::input::Input;
use crate::authoring::operation::{ChildOperation, HookOperation, StepOperation, StoredStep, TimerOperation};
use crate::authoring::registry::{StepCall, decode_input, encode_output};
use crate::authoring::step::StepHandle;
use crate::authoring::stream::WorkflowStream;
use crate::authoring::workflow::WorkflowHandle;
use crate::error::{Error, NextInput, StepError};
use crate::replay::state::{NewChildRun, NewStep};
use crate::replay::{RunState, Saga, can_read, workflow_stream_name};

/// The context of a run: its methods request operations, and each operation is a future.
///
/// An operation gets its number when the method is called, and is requested when the workflow next suspends, whether it
/// has been polled or not. Operations can therefore be collected, joined and raced like other futures.
///
/// # Only in the workflow's own code
///
/// A context works only while the engine polls the workflow of its run, because only that code runs again in a replay.
/// It does not work in a step, in a spawned task, on another thread or in another run. A request made there is not
/// recorded: the run becomes stuck, and the message says what was requested and where. An operation that is created or
/// awaited there stays pending; [`record`](Self::record) and [`tag`](Self::tag) return an error;
/// [`patched`](Self::patched), [`random`](Self::random) and [`uuid`](Self::uuid) panic. Deploy a fix and the run
/// resumes.
///
/// Reads that record nothing work everywhere, and return the state as of the last turn: [`now`](Self::now),
/// [`is_cancelled`](Self::is_cancelled), [`tags`](Self::tags), [`run`](Self::run), [`headers`](Self::headers) and the
/// other properties of the start, and [`patched`](Self::patched) for a name that the workflow has already asked about.
/// To learn whether it should stop, a step calls [`StepContext::is_cancelled`](crate::StepContext::is_cancelled),
/// which does not wait for a turn.
///
/// There is deliberately no way to ask whether the code is being replayed: code that behaves differently in a replay
/// would diverge. Log lines are suppressed in a replay by the engine.
#[derive(Clone, Debug)]
pub struct Context {
    state: Arc<RunState>,
    /// Whether its operations are protected from a cancel and the deadline.
    is_shielded: bool,
    /// The saga in which it registers compensations.
    saga: Saga,
}

impl Context {
    pub(crate) fn new(state: Arc<RunState>) -> Self {
        Self { state, is_shielded: false, saga: Saga::default() }
    }

    pub(crate) fn run_state(&self) -> &Arc<RunState> {
        &self.state
    }

    pub(super) fn saga_scope(&self) -> Saga {
        self.saga
    }

    /// The same context, for a part of the workflow in this saga.
    pub(super) fn in_saga(&self, saga: Saga) -> Self {
        Self { saga, ..self.clone() }
    }

    pub(crate) fn codec(&self) -> Arc<dyn Codec> {
        self.state.codec().clone()
    }

    /// Requests a step.
    ///
    /// The outcome of the step is recorded once. Failed attempts are retried according to the step's policy, which the
    /// methods of the returned operation override for this call. The operation completes with the output, or with the
    /// failure of the last attempt.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step(attempts = 3)]
    /// async fn charge(cents: u64) -> Result<String, StepError> {
    ///     Ok(format!("paid {cents}"))
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ///     Ok(ctx.step(charge, &cents).timeout("30s").await?)
    /// }
    /// ```
    #[track_caller]
    pub fn step<H, M>(&self, step: H, input: impl Input<H::Input>) -> StepOperation<H::Output, H::Input>
    where
        H: StepHandle<M>,
    {
        let name: Arc<str> = step.name().into();
        let new =
            NewStep { name: name.clone(), was: step.was(), policy: step.policy(), call: None, queue: None };
        // Not inside the closure: `create_…` records the location of its caller.
        let input = input.with(|input| self.state.step_input(input));
        StepOperation::new(self.state.create_stored_step(new, input, self.is_shielded), name, self.saga)
    }

    /// Requests a step whose code is a closure.
    ///
    /// The input is recorded, and every attempt receives the recorded value. The closure should use nothing else from
    /// the workflow, because after a crash a worker creates it again in a replay.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn fetch(id: u64) -> Result<String, std::io::Error> { Ok(format!("user {id}")) }
    /// #[workflow]
    /// async fn greet(ctx: Context, id: u64) -> Result<String, Error> {
    ///     ctx.call("fetch-user", id, async |id| fetch(id).await).await
    /// }
    /// ```
    #[track_caller]
    pub fn call<A, O, E, F, Fut>(&self, name: &str, input: A, call: F) -> StepOperation<O, A>
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        E: Into<StepError> + 'static,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let (codec, step) = (self.codec(), name.to_owned());
        let erased: StepCall = Arc::new(move |_info, input| {
            let input = match decode_input::<A>(input, &*codec, &step) {
                Ok(input) => input,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            };
            let (attempt, codec) = (call(input), codec.clone());
            Box::pin(async move { encode_output(&attempt.await.map_err(Into::into)?, &*codec) })
        });
        let name: Arc<str> = name.into();
        let new = NewStep {
            name: name.clone(),
            was: &[],
            policy: Policy::DEFAULT,
            call: Some(erased),
            queue: None,
        };
        StepOperation::new(self.state.create_step(new, &input, self.is_shielded), name, self.saga)
    }

    /// Waits for a duration.
    ///
    /// The time at which the timer fires is recorded, so the wait survives crashes and deploys and does not start over.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn remind(ctx: Context) -> Result<(), Error> {
    ///     ctx.sleep("3d").await?;
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn sleep(&self, duration: impl IntoDuration) -> TimerOperation {
        TimerOperation::new(self.state.create_timer(duration.into_duration(), self.is_shielded))
    }

    /// Waits until a time of the world's clock. A time in the past is reached at once.
    ///
    /// ```
    /// # use outlast::{Timestamp, prelude::*};
    /// #[workflow]
    /// async fn publish(ctx: Context, embargo: Timestamp) -> Result<(), Error> {
    ///     ctx.sleep_until(embargo).await?;
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn sleep_until(&self, moment: Timestamp) -> TimerOperation {
        TimerOperation::new(self.state.create_timer_at(moment, self.is_shielded))
    }

    /// Computes a value once and records it: every replay returns the recorded value and does not call the closure.
    ///
    /// Use it for a value that is computed quickly and without side effects: a configured rate, or a number from
    /// another random generator. The value is available at once, and it is recorded before anything that depends on it
    /// happens. Work that can fail or has side effects belongs in a [step](Self::call).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # fn rate_of_the_day() -> f64 { 0.93 }
    /// #[workflow]
    /// async fn quote(ctx: Context, cents: u64) -> Result<f64, Error> {
    ///     let rate: f64 = ctx.record("rate", || rate_of_the_day())?;
    ///     ctx.sleep("3d").await?;
    ///     Ok(cents as f64 * rate) // the rate of the day on which the run started
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `Limit` if the value or its name exceeds a limit, `Invalid` if the value has no JSON form. The error is the same
    /// in every replay. If the recorded value cannot be decoded as a `T`, the run becomes stuck and the call does not
    /// return.
    ///
    /// # Panics
    ///
    /// If the closure uses the context, because a replay does not call it.
    #[track_caller]
    pub fn record<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        self.state.record(name, compute)
    }

    /// Returns whether the run takes the new branch of a change to its workflow's code.
    ///
    /// The answer is true for a run that reaches this point for the first time with this code, and it is recorded. It
    /// is false for a run that passed this point before the change. Each run has one answer per name, wherever and
    /// however often it asks. When no run from before the change is left, remove the condition and the old branch.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn charge(cents: u64) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn check_limit(cents: u64) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    ///     if ctx.patched("check the limit first") {
    ///         ctx.step(check_limit, &cents).await?;
    ///     }
    ///     ctx.step(charge, &cents).await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than 128 bytes, or if it is called
    /// [outside the workflow's own code](Self#only-in-the-workflows-own-code) for a new name.
    pub fn patched(&self, name: &str) -> bool {
        self.state.patched(name)
    }

    /// Waits for a payload that a client sends to this run under the hook's name.
    ///
    /// A payload that is sent before the run waits is kept. Several payloads are taken in the order in which they were
    /// sent. A payload that no open hook of its name can decode as its `T` is rejected, and the run keeps waiting.
    ///
    /// The name is text, or a [`Hook`](crate::Hook) constant that also has the type and can be shared with the senders.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// const REVIEW: Hook<bool> = Hook::new("review");
    ///
    /// #[workflow]
    /// async fn review(ctx: Context) -> Result<bool, Error> {
    ///     let stars = ctx.hook::<u8>("rating").timeout("3d").await?;
    ///     Ok(stars > 3 || ctx.hook(REVIEW).await?)
    /// }
    /// ```
    #[track_caller]
    pub fn hook<T: DeserializeOwned>(&self, hook: impl HookName<T>) -> HookOperation<T> {
        let name = hook.hook_name();
        HookOperation::new(self.state.create_hook(name, can_read::<T>, self.is_shielded), name.into())
    }

    /// Starts a child run and awaits its output or failure.
    ///
    /// The child has its own history, and any worker may execute it. It is started by the commit that records the
    /// request. When it ends, the parent continues at once.
    ///
    /// A child that is still running when its parent ends is cancelled, unless
    /// [`on_parent_end`](ChildOperation::on_parent_end) says otherwise. A cancel of the parent is passed on to it.
    /// Dropping the operation discards only the outcome: the child continues, unless it is told to
    /// [stop then](ChildOperation::cancel_on_drop).
    /// [`abandon`](ChildOperation::abandon) starts an independent run.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn ship(ctx: Context, parcel: u64) -> Result<String, Error> {
    ///     Ok(format!("parcel {parcel} is on its way"))
    /// }
    ///
    /// #[workflow]
    /// async fn order(ctx: Context, parcels: Vec<u64>) -> Result<Vec<String>, Error> {
    ///     let shipped = parcels.iter().map(|parcel| ctx.child(ship, parcel).timeout("2d"));
    ///     try_join_all(shipped).await
    /// }
    /// ```
    #[track_caller]
    pub fn child<H, M>(&self, workflow: H, input: impl Input<H::Input>) -> ChildOperation<H::Output>
    where
        H: WorkflowHandle<M>,
    {
        // Not inside the closure: `create_…` records the location of its caller.
        let plain = input.with(|input| {
            let check = || workflow.check(input).map_err(Error::into_failure);
            self.state.child_input(input, check)
        });
        let new = NewChildRun {
            workflow: workflow.name(),
            version: workflow.version(),
            queue: workflow.queue(),
            priority: workflow.priority(),
            ending: workflow.ending().into_option(),
        };
        let handle = self.state.create_child(new, plain, self.is_shielded);
        ChildOperation::new(handle, workflow.name().into())
    }

    /// Continues the run with another input and without the history of its past: as its next generation. Return the
    /// result.
    ///
    /// A run that lives long, or repeats something without end, would otherwise reach the limit of its history, and
    /// each replay would take longer than the last. The next generation is the same run: it keeps its id, key, tags,
    /// deadline and parent, and everybody who waits for its output keeps waiting. Payloads that no hook has taken are
    /// kept for it. Open operations are dropped first; children continue, and are still cancelled or awaited when the
    /// run ends. It begins with the newest version of the workflow that the worker has registered; see
    /// [`continue_pinned`](Self::continue_pinned). Generations before the previous one are deleted, unless the worker
    /// [keeps](crate::WorkerBuilder::keep_generations) more.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[step] async fn poll_sensor(room: u64) -> Result<i64, StepError> { Ok(21) }
    /// #[derive(Serialize, Deserialize)]
    /// struct Watch { room: u64, highest: i64 }
    ///
    /// #[workflow]
    /// async fn watch(ctx: Context, mut state: Watch) -> Result<i64, Error> {
    ///     for _ in 0..100 {
    ///         state.highest = state.highest.max(ctx.step(poll_sensor, state.room).await?);
    ///         ctx.sleep("1m").await?;
    ///     }
    ///     ctx.continue_as(&state)
    /// }
    /// ```
    ///
    /// A run that was cancelled does not continue: it ends as cancelled. The error type of the workflow must be
    /// [`Error`], which carries the request to the engine; as long as the workflow does not return it, nothing happens.
    /// An input that the workflow cannot decode makes the run stuck.
    ///
    /// # Errors
    ///
    /// Always: the request itself, or `Limit` if the input is too large, `Invalid` if it has no JSON form.
    pub fn continue_as<T>(&self, input: &impl Serialize) -> Result<T, Error> {
        self.continue_with(input, false)
    }

    /// Continues the run as [`continue_as`](Self::continue_as) does, but with the version of the workflow that it has
    /// now, even if the worker has registered a newer one. Use it when the input has a form that only this version
    /// can decode.
    ///
    /// # Errors
    ///
    /// Always: those of [`continue_as`](Self::continue_as).
    pub fn continue_pinned<T>(&self, input: &impl Serialize) -> Result<T, Error> {
        self.continue_with(input, true)
    }

    fn continue_with<T>(&self, input: &impl Serialize, is_pinned: bool) -> Result<T, Error> {
        Err(match self.state.encode(input) {
            Ok(input) => Error::continue_as(NextInput { input, is_pinned }),
            Err(failure) => Error::of_failure(failure),
        })
    }

    /// Returns the generation of the run: 1, and one more each time it has [continued](Self::continue_as).
    pub fn generation(&self) -> u64 {
        self.state.generation()
    }

    /// Executes the step of this run, which is a queued step.
    pub(crate) fn run_queued_step(&self, step: Arc<str>, input: Payload) -> StoredStep {
        let policy = self.state.policy();
        let new = NewStep { name: step, was: &[], policy, call: None, queue: None };
        StoredStep::new(self.state.create_stored_step(new, Some(Ok(input)), self.is_shielded))
    }

    /// Returns a context whose operations are not affected by a cancel or a deadline of the run. Use it to clean up
    /// after a cancel, or to finish work that must not be left half done.
    ///
    /// After a cancel every other operation fails as cancelled. An operation that is requested through this context
    /// works as usual, whether it began before the cancel or after it, and so do its retries, its queued step or its
    /// child. A shield does not protect an operation that is dropped, and it does not protect against
    /// [`terminate`](crate::Client::terminate) or the end of a run whose code is gone. Shielding a shielded context
    /// changes nothing.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn reserve(room: u64) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn release(room: u64) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn book(ctx: Context, room: u64) -> Result<bool, Error> {
    ///     ctx.step(reserve, room).await?;
    ///     let paid = ctx.hook::<bool>("paid").timeout("1h").await;
    ///     if paid.is_err() {
    ///         ctx.shielded().step(release, room).await?; // also when the run was cancelled
    ///     }
    ///     paid
    /// }
    /// ```
    ///
    /// It has no effect in a run with rules 1, which was started by a build without shields: there, operations after a
    /// cancel work normally.
    #[must_use = "only operations of the returned context are shielded"]
    pub fn shielded(&self) -> Self {
        Self { is_shielded: true, ..self.clone() }
    }

    /// Returns whether this is a [shielded](Self::shielded) context.
    pub fn is_shielded(&self) -> bool {
        self.is_shielded
    }

    /// Calls a closure with a [shielded](Self::shielded) context and awaits the result.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn refund(cents: u64) -> Result<(), StepError> { Ok(()) }
    /// # #[step] async fn apologise(whom: String) -> Result<(), StepError> { Ok(()) }
    /// # async fn undo(ctx: &Context) -> Result<(), Error> {
    /// ctx.shield(async |ctx| {
    ///     ctx.step(refund, 4200_u64).await?;
    ///     ctx.step(apologise, "Zoë").await
    /// })
    /// .await
    /// # }
    /// ```
    pub async fn shield<T>(&self, work: impl AsyncFnOnce(Self) -> T) -> T {
        work(self.shielded()).await
    }

    /// Sets a tag of the run, by which clients can find it. The tag is stored with the commit of this turn.
    ///
    /// A tag has neither an operation number nor an event, so you can add one to the code while runs are in
    /// progress. A run that has passed that point gets the tag with its next turn after the deploy. A tag that the code
    /// no longer sets keeps its value. (In runs with rules 1 tags have numbers: there, adding a tag is a
    /// change like any other.)
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn import(ctx: Context, customer: String) -> Result<(), Error> {
    ///     ctx.tag("customer", &customer)?;
    ///     ctx.tag("phase", "fetching")
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `Limit` if the run already has 32 tags, the name is empty or longer than 128 bytes, or the value is longer than
    /// 256 bytes. The error is the same in every replay.
    pub fn tag(&self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), Error> {
        self.state.tag(name.as_ref(), value.as_ref())
    }

    /// Publishes a state of the run, which replaces the one before. Clients read it with
    /// [`state`](crate::Client::state) and follow its changes with [`watch`](crate::Client::watch).
    ///
    /// The state is stored with the commit of this turn; of several states in one turn only the last is stored. Publishing
    /// has neither an operation number nor an event, so you can add it to the code while runs are in progress. A state
    /// that has more than 256 KiB or no JSON form is dropped and counted.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use serde::{Deserialize, Serialize};
    /// # #[step] async fn fetch(page: u32) -> u32 { page }
    /// #[derive(Debug, PartialEq, Serialize, Deserialize)]
    /// struct Progress { done: u32, of: u32 }
    ///
    /// #[workflow]
    /// async fn import(ctx: Context, pages: u32) -> Result<(), Error> {
    ///     for page in 0..pages {
    ///         ctx.step(fetch, page).await?;
    ///         ctx.publish(&Progress { done: page + 1, of: pages });
    ///     }
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((import, fetch)).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(import, 3_u32).await?;
    /// run.output().await?;
    /// assert_eq!(client.state(run.id()).await?, Some(Progress { done: 3, of: 3 }));
    /// # worker.stop().await }
    /// ```
    pub fn publish<T: Serialize + ?Sized>(&self, state: &T) {
        self.state.publish(state);
    }

    /// Returns a stream of the run, to which the workflow writes. Clients read it with
    /// [`stream`](crate::Client::stream).
    ///
    /// Chunks are stored with the commit of this turn, exactly once. Writing has neither an operation number nor an
    /// event, and a replay does not write again. So chunks that you add to the code are written by runs that reach that
    /// point after the deploy.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn import(ctx: Context) -> Result<(), Error> {
    ///     ctx.stream("log").write("starting");
    ///     ctx.sleep("10ms").await?;
    ///     ctx.stream("log").write("done");
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(import).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(import, ()).await?;
    /// run.output().await?;
    /// let page = client.stream::<String>(run.id(), "log").await?;
    /// assert_eq!(page.values(), ["starting", "done"]);
    /// # worker.stop().await }
    /// ```
    ///
    /// # Panics
    ///
    /// If the name is empty, longer than 128 bytes or contains NUL.
    pub fn stream(&self, name: &str) -> WorkflowStream {
        WorkflowStream::new(self.state.clone(), workflow_stream_name(name))
    }

    /// Returns the run's tags: those of its start, and those that it has set since.
    pub fn tags(&self) -> Tags {
        self.state.tags()
    }

    /// Returns the run that started this one as a child, if any.
    pub fn parent(&self) -> Option<RunId> {
        self.state.parent().map(|parent| parent.run)
    }

    /// Returns the first run in the chain of parents: the run itself if it has no parent.
    pub fn root(&self) -> RunId {
        self.state.parent().map_or(self.run(), |parent| parent.root)
    }

    /// Returns the time at which the run is cancelled if it has not ended; see
    /// [`deadline`](crate::StartCall::deadline).
    pub fn deadline(&self) -> Option<Timestamp> {
        self.state.deadline()
    }

    /// Returns the time of the current turn, by the world's clock.
    ///
    /// It is the same in every replay, and it does not advance between two awaits.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// Returns a random number that is the same in every replay.
    ///
    /// Do not use it for secrets: the numbers are computed from the run's id, so anyone who knows the id can predict
    /// them. Generate tokens, passwords and keys in a step, with a secure generator.
    ///
    /// # Panics
    ///
    /// If it is called [outside the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn random(&self) -> u64 {
        self.state.random()
    }

    /// Returns a random UUID (version 4) that is the same in every replay.
    ///
    /// Like [`random`](Self::random), it can be predicted by anyone who knows the run's id: use it as an identifier,
    /// not as a secret.
    ///
    /// # Panics
    ///
    /// If it is called [outside the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn uuid(&self) -> String {
        let bits = (u128::from(self.random()) << 64) | u128::from(self.random());
        let bits = bits & !(0xf000_u128 << 64) | (0x4000_u128 << 64);
        let bits = bits & !(0b11_u128 << 62) | (0b10_u128 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Returns the run's id.
    pub fn run(&self) -> RunId {
        self.state.run()
    }

    /// Returns the name under which the run was started: the workflow's current name, or an
    /// [earlier one](macro@crate::workflow).
    pub fn workflow(&self) -> &str {
        self.state.workflow()
    }

    /// Returns the version of the workflow that the run was started with. A run never changes its version.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow(name = "greet")]
    /// async fn greet_v1(ctx: Context) -> Result<u32, Error> {
    ///     Ok(ctx.version()) // 1
    /// }
    ///
    /// #[workflow(name = "greet", version = 2)]
    /// async fn greet(ctx: Context) -> Result<u32, Error> {
    ///     Ok(ctx.version()) // 2
    /// }
    /// // Register both with `.register((greet, greet_v1))`: each run continues with its own version.
    /// ```
    pub fn version(&self) -> u32 {
        self.state.version()
    }

    /// Returns the headers of the start, such as a trace context or the caller's identity; see
    /// [`header`](crate::StartCall::header).
    pub fn headers(&self) -> &Headers {
        self.state.headers()
    }

    /// Whether an error of one branch waits for the other branches. After a cancel it does: every branch ends by
    /// itself, and the outcome of a step that is being attempted is awaited.
    pub(crate) fn awaits_branches(&self) -> bool {
        self.state.is_refusing()
    }

    /// Returns whether the run has been cancelled, by a client, its deadline or the end of its parent.
    ///
    /// It becomes true with the turn that delivers the cancel, and stays true. From then on, unshielded operations
    /// fail as cancelled, so a workflow rarely needs to ask. It helps in code that handles an error without knowing its
    /// cause, and before a long computation.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn import(page: u32) -> Result<u32, StepError> { Ok(page) }
    /// #[workflow]
    /// async fn import_all(ctx: Context, pages: u32) -> Result<u32, Error> {
    ///     let mut failed = 0;
    ///     for page in 0..pages {
    ///         match ctx.step(import, page).await {
    ///             Err(error) if ctx.is_cancelled() => return Err(error), // stop
    ///             Err(_) => failed += 1,                                 // skip the page
    ///             Ok(_) => {}
    ///         }
    ///     }
    ///     Ok(failed)
    /// }
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }
}
