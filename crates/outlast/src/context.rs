//! The context: all that a workflow can ask for.

use std::future::Future;
use std::sync::Arc;

use outlast_core::{Codec, Headers, IntoDuration, Payload, Policy, RunId, Tags, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, StepError};
use crate::input::Input;
use crate::operation::{ChildOperation, HookOperation, StepOperation, StoredStep, TimerOperation};
use crate::registry::{StepCall, decode_input, encode_output};
use crate::replay::state::{NewChildRun, NewStep};
use crate::replay::{RunState, can_read};
use crate::step::StepHandle;
use crate::workflow::WorkflowHandle;

/// All that a workflow can ask for. Every operation it returns is a future.
///
/// An operation gets its number when it is called and is requested at the next suspension, polled or
/// not. So operations can be collected, joined and raced as they are.
///
/// # Only in the workflow's own code
///
/// A context works while the engine polls the workflow of its run, since only what the workflow does then happens
/// again in a replay. It does not work in a step, in a spawned task, on another thread or in another run. What it is
/// asked for there is not recorded: the run is stuck, and says what was asked for and where. A handle that was
/// created or is awaited there stays pending; [`record`](Self::record) and [`tag`](Self::tag) return an error;
/// [`patched`](Self::patched), [`random`](Self::random) and [`uuid`](Self::uuid) panic. Deploy a fix, and the run
/// goes on.
///
/// Reads that record nothing answer everywhere, as of the last turn: [`now`](Self::now),
/// [`is_cancelled`](Self::is_cancelled), [`tags`](Self::tags), [`run`](Self::run), [`headers`](Self::headers) and the
/// other facts of the start, and [`patched`](Self::patched) for a name that the workflow has asked for already. A step
/// that wants to know whether it should stop asks [`StepContext::is_cancelled`](crate::StepContext::is_cancelled),
/// which does not wait for a turn.
#[derive(Clone, Debug)]
pub struct Context {
    state: Arc<RunState>,
    /// Whether neither a cancel nor a deadline touches what is asked for through it.
    is_shielded: bool,
}

impl Context {
    pub(crate) fn new(state: Arc<RunState>) -> Self {
        Self { state, is_shielded: false }
    }

    pub(crate) fn codec(&self) -> Arc<dyn Codec> {
        self.state.codec().clone()
    }

    /// Asks for a step. Its outcome is recorded once; attempts are made as its policy says.
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
        // The closure is not where the workflow asked for it.
        let input = input.with(|input| self.state.step_input(input));
        StepOperation::new(self.state.create_stored_step(new, input, self.is_shielded), name)
    }

    /// Asks for a step that is written in place. The input is recorded, and given to each attempt.
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
        let erased: StepCall = Arc::new(move |_about, input| {
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

    /// Waits for a duration, through crashes and deploys.
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

    /// Waits for a moment of the world's clock, through crashes and deploys. One that is past is there
    /// at once.
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

    /// Computes a value once, and records it: every replay returns what the first call returned, whatever
    /// the closure would return by then.
    ///
    /// For what is quick, has no effects and need not be attempted again: a reading of the clock, a draw
    /// of another generator, a configured rate. The value is there at once, and history has it before
    /// anything that follows from it happens. What can fail or has effects is a [step](Self::call).
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
    /// `Limit` when the value or its name is past a limit, `Invalid` when the value has no JSON. They are the
    /// same in every replay. What history has and is not a `T` makes the run stuck: the call does not return.
    ///
    /// # Panics
    ///
    /// When the closure uses the context: a replay does not call it.
    #[track_caller]
    pub fn record<T, F>(&self, name: &str, compute: F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T,
    {
        self.state.record(name, compute)
    }

    /// Whether the run takes the new side of a change to its workflow's code.
    ///
    /// True for a run that comes here for the first time with this code, and recorded then; false for
    /// one that passed here before the change. Each run has one answer per name, wherever and however
    /// often it asks. When no run is left that passed here before, remove the question and the old side.
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

    /// Waits for a payload that the outside sends to this run by the hook's name.
    ///
    /// A payload sent before anyone waits is kept. Several are taken in the order they were sent. One that
    /// no open hook of its name can read as its `T` is rejected, and the wait goes on.
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

    /// Starts a child: a run of its own, whose output or failure this one awaits, through crashes and
    /// deploys of either. When it ends, the parent goes on at once.
    ///
    /// A child that has not ended when its parent ends is cancelled, unless
    /// [`on_parent_end`](ChildOperation::on_parent_end) says otherwise; a cancel of the parent reaches it
    /// too. Dropping the operation ends the interest in the outcome; the child goes on.
    /// [`abandon`](ChildOperation::abandon) starts a run that goes its own way.
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
        // The closure is not where the workflow asked for it.
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

    /// The step that is this run's whole life, since it is a queued one.
    pub(crate) fn whole_life(&self, step: Arc<str>, input: Payload) -> StoredStep {
        let policy = self.state.policy();
        let new = NewStep { name: step, was: &[], policy, call: None, queue: None };
        StoredStep::new(self.state.create_stored_step(new, Some(Ok(input)), self.is_shielded))
    }

    /// A context whose operations neither a cancel nor a deadline of the run touches: to clean up after a
    /// cancel, or to finish what must not be left half done.
    ///
    /// After a cancel every other operation fails as cancelled. What is asked for through this context works as
    /// always, whether it began before the cancel or after it, together with its retries, its queued step or its
    /// child. It is not protected from being dropped, from
    /// [`terminate`](crate::Client::terminate), or from the end of a run whose code is gone. A shielded context
    /// of a shielded one is the same.
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
    /// In a run that was started by a build without shields (its history has rules 1) it changes nothing: there,
    /// operations after a cancel work as always.
    #[must_use = "the shield covers what is asked for through the context that this returns"]
    pub fn shielded(&self) -> Self {
        Self { state: self.state.clone(), is_shielded: true }
    }

    /// Whether this is a [shielded](Self::shielded) context.
    pub fn is_shielded(&self) -> bool {
        self.is_shielded
    }

    /// What a closure does with a [shielded](Self::shielded) context.
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

    /// Gives the run a tag to be found by, or changes one. It has it from this turn on.
    ///
    /// Tags have neither an operation number nor an event, so that a tag can be added to code whose runs are
    /// under way. A run that is past the place gets it with its next turn after the deploy. A tag that the code
    /// does not set any more stays as it was. (Runs with rules 1 keep their numbering: there, adding a tag is a
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
    /// `Limit` when the run has 32 tags already, the name is empty or longer than 128 bytes, or the value
    /// longer than 256. It is the same in every replay.
    pub fn tag(&self, name: impl AsRef<str>, value: impl AsRef<str>) -> Result<(), Error> {
        self.state.tag(name.as_ref(), value.as_ref())
    }

    /// The run's tags: those of its start, and those that it set since.
    pub fn tags(&self) -> Tags {
        self.state.tags()
    }

    /// The run that started this one, if one did.
    pub fn parent(&self) -> Option<RunId> {
        self.state.parent().map(|parent| parent.run)
    }

    /// The first of the run's line: the run that no other started.
    pub fn root(&self) -> RunId {
        self.state.parent().map_or(self.run(), |parent| parent.root)
    }

    /// When the run is told to stop if it has not ended by then; see
    /// [`deadline`](crate::StartCall::deadline).
    pub fn deadline(&self) -> Option<Timestamp> {
        self.state.deadline()
    }

    /// The time of this turn: the same in every replay.
    pub fn now(&self) -> Timestamp {
        self.state.now()
    }

    /// A random number: the same in every replay.
    ///
    /// # Panics
    ///
    /// When it is called [outside of the workflow's own code](Self#only-in-the-workflows-own-code).
    pub fn random(&self) -> u64 {
        self.state.random()
    }

    /// A random UUID (version 4): the same in every replay.
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

    /// The name under which the run was started: the workflow's, or one that it [had](macro@crate::workflow).
    pub fn workflow(&self) -> &str {
        self.state.workflow()
    }

    /// The version of the workflow that the run was started with. It keeps that version for life.
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
    /// // Register both, `.register((greet, greet_v1))`: each run goes on with its own.
    /// ```
    pub fn version(&self) -> u32 {
        self.state.version()
    }

    /// What travels with the run: trace context, the caller's identity; see
    /// [`header`](crate::StartCall::header).
    pub fn headers(&self) -> &Headers {
        self.state.headers()
    }

    /// Whether an error waits for the other branches: after a cancel each of them ends by itself, and a step that
    /// is being attempted is heard.
    pub(crate) fn awaits_branches(&self) -> bool {
        self.state.is_refusing()
    }

    /// Whether the run was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }
}
