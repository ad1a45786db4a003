//! The context: everything that a workflow can request.

use std::future::Future;
use std::sync::Arc;

use outlast_core::{Codec, Headers, IntoDuration, Payload, Policy, RunId, Tags, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::input::Input;
use crate::authoring::operation::{ChildOperation, HookOperation, StepOperation, StoredStep, TimerOperation};
use crate::authoring::registry::{StepCall, decode_input, encode_output};
use crate::authoring::step::StepHandle;
use crate::authoring::workflow::WorkflowHandle;
use crate::error::{Error, StepError};
use crate::replay::state::{NewChildRun, NewStep};
use crate::replay::{RunState, can_read};

/// Everything that a workflow can request. Every operation that it returns is a future.
///
/// An operation gets its number when the method is called, and is requested when the workflow next waits, whether it
/// was polled or not. So operations can be collected, joined and raced like any futures.
///
/// # Only in the workflow's own code
///
/// A context works while the engine polls the workflow of its run, because a replay repeats only what the workflow does
/// then. It does not work in a step, in a spawned task, on another thread or in another run. A request from there is
/// not recorded: the run gets stuck, with a message that names the request and where it was made. A handle that was
/// created or is awaited there stays pending; [`record`](Self::record) and [`tag`](Self::tag) return an error;
/// [`patched`](Self::patched), [`random`](Self::random) and [`uuid`](Self::uuid) panic. Deploy a fix and the run
/// resumes.
///
/// Methods that record nothing work everywhere, and return the state of the last turn: [`now`](Self::now),
/// [`is_cancelled`](Self::is_cancelled), [`tags`](Self::tags), [`run`](Self::run), [`headers`](Self::headers) and the
/// other properties of the start, and [`patched`](Self::patched) for a name that the workflow has used before. A step
/// that must know whether to stop calls [`StepContext::is_cancelled`](crate::StepContext::is_cancelled), which does not
/// wait for a turn.
#[derive(Clone, Debug)]
pub struct Context {
    state: Arc<RunState>,
    /// Whether its operations are protected from a cancel and the deadline.
    is_shielded: bool,
}

impl Context {
    pub(crate) fn new(state: Arc<RunState>) -> Self {
        Self { state, is_shielded: false }
    }

    pub(crate) fn codec(&self) -> Arc<dyn Codec> {
        self.state.codec().clone()
    }

    /// Requests a step. Its outcome is recorded once; its policy decides about attempts.
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
    pub fn step<H, M>(&self, step: H, input: impl Input<H::Input>) -> StepOperation<H::Output>
    where
        H: StepHandle<M>,
    {
        let name: Arc<str> = step.name().into();
        let new =
            NewStep { name: name.clone(), was: step.was(), policy: step.policy(), call: None, queue: None };
        // Not inside the closure: `create_…` records the location of its caller.
        let input = input.with(|input| self.state.step_input(input));
        StepOperation::new(self.state.create_stored_step(new, input, self.is_shielded), name)
    }

    /// Requests a step that is written in place. The input is recorded and passed to each attempt.
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
    pub fn call<A, O, E, F, Fut>(&self, name: &str, input: A, call: F) -> StepOperation<O>
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
        StepOperation::new(self.state.create_step(new, &input, self.is_shielded), name)
    }

    /// Waits for a duration, across crashes and deployments.
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

    /// Waits until a time of the world's clock, across crashes and deployments. It completes immediately if that time
    /// has passed.
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

    /// Computes a value once and records it: every replay returns the recorded value without calling the closure.
    ///
    /// Use it for computations that are quick and have no side effects: reading a clock, a number of another random
    /// generator, a configured rate. The value is available immediately, and is recorded before anything that depends
    /// on it takes effect. Use a [step](Self::call) for work that can fail or has side effects.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # fn rate_of_the_day() -> f64 { 0.93 }
    /// #[workflow]
    /// async fn quote(ctx: Context, cents: u64) -> Result<f64, Error> {
    ///     let rate: f64 = ctx.record("rate", || rate_of_the_day())?;
    ///     ctx.sleep("3d").await?;
    ///     Ok(cents as f64 * rate) // the rate of the day on which the run began
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// `Limit` when the value or its name exceeds a limit, `Invalid` when the value cannot be serialized as JSON. Every
    /// replay returns the same error. A recorded value that cannot be decoded as a `T` makes the run stuck: the call
    /// does not return.
    ///
    /// # Panics
    ///
    /// When the closure uses the context, because a replay does not call the closure.
    #[track_caller]
    pub fn record<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        self.state.record(name, compute)
    }

    /// Whether the run takes the new branch of a change to its workflow's code.
    ///
    /// True, and recorded, for a run that reaches this call for the first time with this code; false for a run that
    /// passed this position before the change. A run always gets the same result for a name, wherever and however often
    /// it calls this. When no run is left that passed this position before the change, remove the call and the old
    /// branch.
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
    /// When the name is empty or longer than 128 bytes, or when it is called
    /// [outside of the workflow's own code](Self#only-in-the-workflows-own-code) for a new name.
    pub fn patched(&self, name: &str) -> bool {
        self.state.patched(name)
    }

    /// Waits for a payload that is sent to this run by the hook's name; see [`Client::send`](crate::Client::send).
    ///
    /// A payload that is sent before the workflow waits is kept. Several payloads are taken in the order in which they
    /// were sent. A payload that no open hook of its name can decode as its `T` is rejected, and the wait continues.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn review(ctx: Context) -> Result<bool, Error> {
    ///     ctx.hook::<bool>("review").timeout("3d").await
    /// }
    /// ```
    #[track_caller]
    pub fn hook<T: DeserializeOwned>(&self, name: &str) -> HookOperation<T> {
        HookOperation::new(self.state.create_hook(name, can_read::<T>, self.is_shielded), name.into())
    }

    /// Starts a child: a separate run whose output or failure this run awaits, across crashes and deployments of
    /// either. When the child ends, this run continues immediately.
    ///
    /// A child that has not ended when its parent ends is cancelled, unless
    /// [`on_parent_end`](ChildOperation::on_parent_end) is set; a cancel of the parent also cancels it. If the
    /// operation is dropped, its outcome is ignored, but the child continues. [`abandon`](ChildOperation::abandon)
    /// starts a child that is independent of this run.
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
        };
        let handle = self.state.create_child(new, plain, self.is_shielded);
        ChildOperation::new(handle, workflow.name().into())
    }

    /// Executes the step of this run, which is a queued step.
    pub(crate) fn run_queued_step(&self, step: Arc<str>, input: Payload) -> StoredStep {
        let policy = self.state.policy();
        let new = NewStep { name: step, was: &[], policy, call: None, queue: None };
        StoredStep::new(self.state.create_stored_step(new, Some(Ok(input)), self.is_shielded))
    }

    /// A context whose operations are protected from a cancel and the deadline of the run: for cleanup after a cancel,
    /// or for work that must not be interrupted.
    ///
    /// After a cancel every other operation fails as cancelled. An operation of this context works normally, whether it
    /// was requested before the cancel or after it, and so do its retries, its queued step or its child. It is not
    /// protected from being dropped, from [`terminate`](crate::Client::terminate), or when a run is ended because no
    /// worker has its code. Calling this on a shielded context changes nothing.
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
        Self { state: self.state.clone(), is_shielded: true }
    }

    /// Whether this is a [shielded](Self::shielded) context.
    pub fn is_shielded(&self) -> bool {
        self.is_shielded
    }

    /// Calls a closure with a [shielded](Self::shielded) context.
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

    /// Sets a tag of the run, by which it can be found. It is stored with this turn.
    ///
    /// Tags have neither an operation number nor an event, so a tag can be added to code that has unfinished runs. A
    /// run that has passed this position gets the tag with its next turn after the deployment. A tag that the code no
    /// longer sets keeps its value. (In runs with rules 1 tags have numbers: there, adding a tag is a change like any
    /// other.)
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
    /// `Limit` when the run already has 32 tags, the name is empty or longer than 128 bytes, or the value is longer
    /// than 256 bytes. Every replay returns the same error.
    pub fn tag(&self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), Error> {
        self.state.tag(name.as_ref(), value.as_ref())
    }

    /// The run's tags: those of its start, and those that the workflow has set.
    pub fn tags(&self) -> Tags {
        self.state.tags()
    }

    /// The run that started this one, if one did.
    pub fn parent(&self) -> Option<RunId> {
        self.state.parent().map(|parent| parent.run)
    }

    /// The topmost ancestor of the run: a run without a parent.
    pub fn root(&self) -> RunId {
        self.state.parent().map_or(self.run(), |parent| parent.root)
    }

    /// When the run is cancelled if it has not ended; see [`deadline`](crate::StartCall::deadline).
    pub fn deadline(&self) -> Option<Timestamp> {
        self.state.deadline()
    }

    /// The time of this turn: the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// A random number: the same in every replay.
    ///
    /// **Not for secrets.** The sequence depends on the run's id alone, so anyone who knows the id can compute it.
    /// Generate passwords, tokens and keys in a step.
    ///
    /// # Panics
    ///
    /// When it is called [outside of the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn random(&self) -> u64 {
        self.state.random()
    }

    /// A random UUID (version 4): the same in every replay.
    ///
    /// **Not for secrets**, such as session tokens: it can be computed from the run's id, like
    /// [`random`](Self::random).
    ///
    /// # Panics
    ///
    /// When it is called [outside of the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn uuid(&self) -> String {
        let bits = (u128::from(self.random()) << 64) | u128::from(self.random());
        let bits = bits & !(0xf000_u128 << 64) | (0x4000_u128 << 64);
        let bits = bits & !(0b11_u128 << 62) | (0b10_u128 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// The run.
    pub fn run(&self) -> RunId {
        self.state.run()
    }

    /// The name with which the run was started: that of the workflow, or an [earlier name](macro@crate::workflow).
    pub fn workflow(&self) -> &str {
        self.state.workflow()
    }

    /// The version of the workflow with which the run was started. It never changes.
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
    /// // Register both, `.register((greet, greet_v1))`: each run continues with its own version.
    /// ```
    pub fn version(&self) -> u32 {
        self.state.version()
    }

    /// The headers of the run, such as trace context; see [`header`](crate::StartCall::header).
    pub fn headers(&self) -> &Headers {
        self.state.headers()
    }

    /// Whether an error of one branch waits for the other branches. After a cancel it does: every branch ends by
    /// itself, and the outcome of a step that is being attempted is awaited.
    pub(crate) fn awaits_branches(&self) -> bool {
        self.state.is_refusing()
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }
}
