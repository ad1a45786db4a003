//! Steps: pieces of work with side effects, their definitions and handles.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use outlast_core::duration::duration;
use outlast_core::limits::{NAME_BYTES_MAX, PRIORITY_MAX};
use outlast_core::{AttemptId, Headers, OpNumber, Policy, Retry, RunId, Tags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::attempt::{Attempt, AttemptInfo, StopReason};
use crate::authoring::attempt_services::AttemptServices;
use crate::authoring::input::Input;
use crate::authoring::reconcile::Reconciling;
use crate::authoring::stream::StepStream;
use crate::authoring::transactional::TransactionKind;
use crate::authoring::unique::start_key;
use crate::authoring::workflow::WorkflowHandle;
use crate::client::{Client, StartCall};
use crate::error::StepError;

/// The definition of a step: its durable name, its types and its policy. Implemented by `#[step]`.
pub trait StepDefinition: 'static {
    /// The input type. Several parameters are a tuple.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// The output type.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The durable name.
    const NAME: &'static str;
    /// Earlier names, which may occur in histories.
    const WAS: &'static [&'static str];
    /// Returns the policy: retries, timeouts and limits.
    fn policy() -> Policy;
    /// Returns the step's key for this input, if the step has the argument `unique`.
    ///
    /// # Errors
    ///
    /// If the values that form the key have no JSON form.
    fn unique(_input: &Self::Input) -> Result<Option<String>, StepError> {
        Ok(None)
    }
}

/// A state of a worker that the step `Step` accepts, because it needs the state `Needed`: only `Needed` itself.
#[diagnostic::on_unimplemented(
    message = "step `{Step}` needs a worker with the state `{Needed}`, but the state of this worker is `{Self}`",
    label = "the step's `StepContext<…>` names the state it needs",
    note = "call `.state(…)` with a value of type `{Needed}` before `.register(…)`, for all steps of the worker"
)]
pub trait StateFor<Needed, Step>: Sized {
    /// Returns the context with the needed state.
    fn context(cx: StepContext<Self>) -> StepContext<Needed>;
}

#[diagnostic::do_not_recommend]
impl<S, Step> StateFor<S, Step> for S {
    fn context(cx: StepContext<S>) -> StepContext<S> {
        cx
    }
}

/// The code of a step, for workers with state `S`. Implemented by `#[step]`.
pub trait StepCode<S>: StepDefinition + Sized {
    /// Whether the step has a `reconcile` function.
    const RECONCILES: bool = false;
    /// The transactions in which the step is attempted, if it is transactional.
    const TRANSACTION: Option<TransactionKind> = None;
    /// Creates one attempt.
    fn attempt(cx: StepContext<S>, input: Self::Input) -> Attempt<Self>;
    /// Checks whether an earlier attempt had its effect.
    fn reconcile(_cx: StepContext<S>, _input: Self::Input) -> Reconciling<Self> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A function with the attribute `#[step]`. `Args` are its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "expected a function with `#[step]`",
    note = "a plain function can be a step in place: `ctx.call(\"name\", input, async |input| …)`"
)]
pub trait StepFn<Args>: Send + Sync + 'static {
    /// The definition of the step.
    type Definition: StepDefinition;
}

macro_rules! step_fns {
    ($(($($arg:ident),*))*) => {$(
        impl<F, D, $($arg,)*> StepFn<($($arg,)*)> for F
        where
            F: Fn($($arg),*) -> Attempt<D> + Send + Sync + 'static,
            D: StepDefinition,
        {
            type Definition = D;
        }
    )*};
}
step_fns! { () (A) (A, B) (A, B, C) (A, B, C, D1) (A, B, C, D1, E) (A, B, C, D1, E, G) (A, B, C, D1, E, G, H) }

/// A handle to a step, as accepted by [`Context::step`](crate::Context::step): a function with `#[step]`, or a [`Step`]
/// constant. `M` distinguishes the two and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "expected a function with `#[step]` or a `Step` constant",
    note = "a plain function can be a step in place: `ctx.call(\"name\", input, async |input| …)`"
)]
pub trait StepHandle<M> {
    /// The input type.
    type Input: Serialize;
    /// The output type.
    type Output: DeserializeOwned;
    /// Returns the durable name.
    fn name(&self) -> &'static str;
    /// Returns earlier names.
    fn was(&self) -> &'static [&'static str];
    /// Returns the policy.
    fn policy(&self) -> Policy;
}

#[diagnostic::do_not_recommend]
impl<F, Args> StepHandle<Args> for F
where
    F: StepFn<Args>,
{
    type Input = <F::Definition as StepDefinition>::Input;
    type Output = <F::Definition as StepDefinition>::Output;

    fn name(&self) -> &'static str {
        F::Definition::NAME
    }

    fn was(&self) -> &'static [&'static str] {
        F::Definition::WAS
    }

    fn policy(&self) -> Policy {
        F::Definition::policy()
    }
}

/// A handle to a step that consists of its name, types and policy, without its function.
///
/// Handles are for contracts that several programs share. The worker that executes the step assigns
/// [its function](crate::WorkerBuilder::step).
///
/// ```
/// use outlast::{Retry, Step};
///
/// const CHARGE: Step<u64, String> = Step::new("charge").retry(Retry::api()).timeout("30s");
/// assert_eq!(CHARGE.name(), "charge");
/// ```
///
/// All methods are `const`, so an invalid value in a constant does not compile.
pub struct Step<I, O> {
    name: &'static str,
    was: &'static [&'static str],
    policy: Policy,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Step<I, O> {
    /// Creates a handle to the step with this durable name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, was: &[], policy: Policy::DEFAULT, types: PhantomData }
    }

    /// Sets earlier names, which may occur in histories.
    #[must_use]
    pub const fn was(self, names: &'static [&'static str]) -> Self {
        Self { was: names, ..self }
    }

    /// Sets the total number of attempts, including the first.
    ///
    /// # Panics
    ///
    /// If `attempts` is 0.
    #[must_use]
    #[track_caller]
    pub const fn attempts(self, attempts: u32) -> Self {
        let retry = self.policy.retry.attempts(attempts);
        self.retry(retry)
    }

    /// Sets the retry policy.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = retry;
        self
    }

    /// Sets how long one attempt may take, as text such as `"30s"`.
    ///
    /// # Panics
    ///
    /// If the text is not a duration.
    #[must_use]
    #[track_caller]
    pub const fn timeout(mut self, timeout: &str) -> Self {
        self.policy.timeout = Some(duration(timeout));
        self
    }

    /// Sets how long an attempt may go without a [heartbeat](StepContext::heartbeat), as text such as `"10s"`.
    ///
    /// # Panics
    ///
    /// If the text is not a duration.
    #[must_use]
    #[track_caller]
    pub const fn heartbeat_timeout(mut self, timeout: &str) -> Self {
        self.policy.heartbeat_timeout = Some(duration(timeout));
        self
    }

    /// Limits the number of attempts at the step that one worker makes at the same time.
    ///
    /// # Panics
    ///
    /// If `limit` is 0.
    #[must_use]
    #[track_caller]
    pub const fn limit(mut self, limit: u32) -> Self {
        assert!(limit > 0, "a step with a limit of 0 is never attempted");
        self.policy.limit = Some(limit);
        self
    }

    /// Limits the step to a single attempt, even after a crash. After a crash the step fails with the kind `Unknown`.
    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.policy.is_at_most_once = true;
        self
    }

    /// Marks the step as transactional: a step that has not completed had no effect, so it is not undone. The worker
    /// registers its code as `#[step(transactional)]`, with the same name.
    #[must_use]
    pub const fn transactional(mut self) -> Self {
        self.policy.is_transactional = true;
        self
    }

    /// Sets the queue of the step; see [`StepOperation::queue`](crate::StepOperation::queue).
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than 128 bytes.
    #[must_use]
    #[track_caller]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        assert_queue(queue);
        self.policy.queue = Some(queue);
        self
    }

    /// Sets the priority of the step in its queue; see [`StepOperation::priority`](crate::StepOperation::priority).
    ///
    /// # Panics
    ///
    /// If it is higher than 9.
    #[must_use]
    #[track_caller]
    pub const fn priority(mut self, priority: u8) -> Self {
        assert_priority(priority);
        self.policy.priority = Some(priority);
        self
    }

    /// Returns the durable name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn earlier_names(&self) -> &'static [&'static str] {
        self.was
    }

    pub(crate) const fn default_policy(&self) -> Policy {
        self.policy
    }
}

#[track_caller]
pub(crate) const fn assert_queue(queue: &str) {
    assert!(!queue.is_empty() && queue.len() <= NAME_BYTES_MAX, "the name of a queue has 1 to 128 bytes");
}

#[track_caller]
pub(crate) const fn assert_priority(priority: u8) {
    assert!(priority <= PRIORITY_MAX, "a priority is a number from 0 (the default) to 9 (the most urgent)");
}

impl<I, O> Clone for Step<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Step<I, O> {}

impl<I, O> fmt::Debug for Step<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({})", self.name)
    }
}

/// Type-level mark of handles that are constants: [`Step`] and [`Workflow`](crate::Workflow).
#[derive(Debug)]
pub enum ByName {}

#[diagnostic::do_not_recommend]
impl<I: Serialize, O: DeserializeOwned> StepHandle<ByName> for Step<I, O> {
    type Input = I;
    type Output = O;

    fn name(&self) -> &'static str {
        self.name
    }

    fn was(&self) -> &'static [&'static str] {
        self.was
    }

    fn policy(&self) -> Policy {
        self.policy
    }
}

/// The context of an attempt: the worker's state, the idempotency key, and whether to stop.
///
/// `S` is the state of the worker. A step that does not need the state takes a plain `StepContext`.
///
/// ```
/// # use outlast::prelude::*;
/// struct Bank;
///
/// impl Bank {
///     async fn charge(&self, cents: u64, key: &str) -> Result<String, std::io::Error> {
///         Ok(format!("payment of {cents}, {key}"))
///     }
/// }
///
/// #[step]
/// async fn charge(cx: StepContext<Bank>, cents: u64) -> Result<String, StepError> {
///     Ok(cx.state().charge(cents, &cx.key()).await?)
/// }
/// ```
#[derive(Debug)]
pub struct StepContext<S = ()> {
    state: Arc<S>,
    info: Arc<AttemptInfo>,
    /// The key from the values of the input, if the step has `unique`.
    unique: Option<Arc<str>>,
}

impl<S> Clone for StepContext<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), info: self.info.clone(), unique: self.unique.clone() }
    }
}

impl<S> StepContext<S> {
    /// The client of the worker.
    pub(crate) fn client(&self) -> &Client {
        &self.info.services.client
    }

    pub(crate) fn new(state: Arc<S>, info: Arc<AttemptInfo>, unique: Option<String>) -> Self {
        Self { state, info, unique: unique.map(Into::into) }
    }

    /// Creates a context with which a unit test can call a step as a plain function.
    pub fn test(state: S) -> Self {
        Self::new(Arc::new(state), Arc::new(AttemptInfo::unwatched()), None)
    }

    /// Returns the same context with a client for [`start`](Self::start), for a unit test of a step that starts runs.
    #[must_use]
    pub fn with_client(self, client: Client) -> Self {
        let mut info = AttemptInfo::unwatched();
        info.services = Arc::new(AttemptServices::with_client(client));
        Self { info: Arc::new(info), ..self }
    }

    /// Starts a run, once: every attempt at this step gets the same run, because the start has a key that is derived
    /// from the step's [`key`](Self::key) and the name of the workflow. The new run is independent, and has the headers
    /// of the run that requested the step. A step that starts several runs of one workflow gives each its own
    /// [key](crate::StartCall::key).
    ///
    /// To start a run from a workflow, use [`Context::child`](crate::Context::child), which needs no step.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn welcome(ctx: Context, user: String) -> Result<(), Error> { Ok(()) }
    /// #[step]
    /// async fn sign_up(cx: StepContext, user: String) -> Result<String, StepError> {
    ///     // … create the account, then:
    ///     let run = cx.start(welcome, &user).tag("user", &user).await?;
    ///     Ok(run.id().to_string())
    /// }
    /// # #[workflow] async fn register(ctx: Context, user: String) -> Result<String, Error> { ctx.step(sign_up, user).await }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((welcome, register, sign_up)).start().await?;
    /// # let client = Client::new(world);
    /// # let welcomed: String = client.start(register, "ada").header("trace", "7").await?.output().await?;
    /// # let runs = client.list().tag("user", "ada").await?.runs;
    /// # assert_eq!(runs[0].id.to_string(), welcomed);
    /// # worker.stop().await }
    /// ```
    pub fn start<H, M>(&self, workflow: H, input: impl Input<H::Input>) -> StartCall<'_, H::Output>
    where
        H: WorkflowHandle<M>,
    {
        let key = start_key(&self.key(), workflow.name());
        let call = self.client().start(workflow, input).key(key);
        self.headers().iter().fold(call, |call, (name, value)| call.header(name, value))
    }

    /// Returns the worker's state, as passed to `Worker::builder(…).state(…)`.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Returns the run that requested the step, also for a queued step.
    pub fn run(&self) -> RunId {
        self.info.run
    }

    /// Returns the name of the step under which the workflow requested it. It is empty in a [test](Self::test).
    pub fn step_name(&self) -> &str {
        &self.info.step
    }

    /// Does not compile: steps cannot call steps. It exists for the error message.
    #[doc(hidden)]
    pub fn step<C: NestedStep, I>(&self, step: C, input: I) -> std::future::Ready<()> {
        drop((step, input));
        std::future::ready(())
    }

    /// Returns the headers with which the run was started, such as a trace context or the caller's identity. A queued
    /// step has the headers of the run that requested it. They are empty in a [test](Self::test).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step]
    /// async fn charge(cx: StepContext, cents: u64) -> String {
    ///     let user = cx.headers().get("user").map_or("nobody", String::as_str);
    ///     format!("{user} pays {cents}")
    /// }
    /// ```
    pub fn headers(&self) -> &Headers {
        &self.info.headers
    }

    /// Returns the name of the workflow that requested the step, also for a queued step. It is empty in a
    /// [test](Self::test), and if an older build has queued the step.
    pub fn workflow(&self) -> &str {
        &self.info.workflow
    }

    /// Returns the tags of the run that requested the step, as of the beginning of this attempt; for a queued step, as
    /// of its request. They are empty in a [test](Self::test).
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step]
    /// async fn charge(cx: StepContext, cents: u64) -> String {
    ///     let tier = cx.tags().get("tier").map_or("standard", String::as_str);
    ///     format!("{}: {cents} cents, {tier}", cx.workflow())
    /// }
    ///
    /// #[workflow]
    /// async fn checkout(ctx: Context) -> Result<String, Error> {
    ///     ctx.tag("tier", "gold")?;
    ///     ctx.step(charge, 42).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((checkout, charge)).start().await?;
    /// # let run = Client::new(world).start(checkout, ()).await?;
    /// assert_eq!(run.output().await?, "checkout: 42 cents, gold");
    /// # worker.stop().await }
    /// ```
    pub fn tags(&self) -> &Tags {
        &self.info.tags
    }

    /// Returns the number of the operation in the run that requested the step.
    pub fn op(&self) -> OpNumber {
        self.info.op
    }

    /// Returns the number of this attempt, starting at 1. An attempt that follows a crash has the same number as the
    /// one before it.
    pub fn attempt(&self) -> u32 {
        self.info.attempt
    }

    /// Returns the idempotency key of the step: the same in every attempt at this step of this run, and different from
    /// the key of any other step. Pass it to the external system, so that it recognizes a repeated request.
    ///
    /// With `#[step(unique = "order.id, action")]` the key is formed from the step's name and these values of the input
    /// instead, so it is the same in every run that requests the same effect:
    ///
    /// * `charge:[42,"pay"]`: the name, a colon, and the values as a JSON array without spaces, with the members of
    ///   objects sorted by the bytes of their names.
    /// * `charge:sha256:…` if that is longer than 255 bytes: 64 hexadecimal digits of the SHA-256 of the array.
    /// * The name is the last one in `was`, the oldest, if there is one: renaming a step does not change its keys.
    ///
    /// In a [test](Self::test) of the function alone, `unique` is ignored.
    ///
    /// ```
    /// # #![deny(unused_variables)]
    /// # use outlast::prelude::*;
    /// #[step(unique = "order, action")]
    /// async fn notify(cx: StepContext, order: u64, action: String) -> String {
    ///     cx.key()
    /// }
    /// # #[workflow] async fn twice(ctx: Context) -> Result<String, Error> {
    /// #     ctx.step(notify, (42, "paid".to_owned())).await
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((twice, notify)).start().await?;
    /// # let key = Client::new(world).start(twice, ()).await?.output().await?;
    /// assert_eq!(key, r#"notify:[42,"paid"]"#); // in every run
    /// # worker.stop().await }
    /// ```
    pub fn key(&self) -> String {
        match &self.unique {
            Some(key) => key.to_string(),
            // The `0` is reserved for a generation of the run; there is only one now.
            None => format!("{}.0.{}", self.info.run, self.info.op),
        }
    }

    /// Returns the unique id of this attempt. In a [test](Self::test) it is always the same.
    ///
    /// An attempt that follows a crash has the same [number](Self::attempt) as the one before it, but another id. To
    /// recognize a repeated effect, use [`key`](Self::key), which is the same in every attempt.
    pub fn attempt_id(&self) -> AttemptId {
        self.info.id
    }

    /// Returns a stream of the run, to which this attempt writes while it works. Clients read it with
    /// [`stream`](crate::Client::stream). A queued step writes to the streams of its own run.
    ///
    /// If the attempt fails or its worker is lost, the next attempt begins again, and readers present only what that one
    /// writes. In a [test](Self::test) the chunks are discarded.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step]
    /// async fn answer(cx: StepContext, question: String) -> Result<String, StepError> {
    ///     let mut answer = String::new();
    ///     for token in ["six ", "times ", "seven"] {
    ///         cx.stream("tokens").write(token).await?; // waits while the buffer is full
    ///         answer.push_str(token);
    ///     }
    ///     Ok(answer)
    /// }
    /// # #[workflow] async fn ask(ctx: Context, question: String) -> Result<String, Error> { ctx.step(answer, question).await }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register((ask, answer)).start().await?;
    /// # let client = Client::new(world);
    /// # let run = client.start(ask, "?").await?;
    /// // In the client, while the step works:
    /// let mut tail = client.stream::<String>(run.id(), "tokens").follow().await?;
    /// assert_eq!(tail.read_to_end().await?.concat(), "six times seven");
    /// # worker.stop().await }
    /// ```
    pub fn stream(&self, name: &str) -> StepStream {
        StepStream::new(self.info.clone(), name)
    }

    /// Returns whether the attempt is asked to stop, because the run or the step was cancelled, the workflow no longer
    /// waits for the step, or the worker releases the run; see [`stop_reason`](Self::stop_reason). The attempt may ignore it.
    pub fn is_cancelled(&self) -> bool {
        self.stop_reason().is_some()
    }

    /// Completes when [`is_cancelled`](Self::is_cancelled) becomes true.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # async fn ask(_shop: String) -> u64 { 1 }
    /// #[step]
    /// async fn price(cx: StepContext, shop: String) -> Result<u64, StepError> {
    ///     select! {
    ///         price = ask(shop) => Ok(price),
    ///         () = cx.cancelled() => Err(StepError::msg("the price is no longer needed")),
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # assert_eq!(price(StepContext::test(()), "shop".into()).await.unwrap(), 1);
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        self.info.stopped().await;
    }

    /// Returns the reason why the attempt is asked to stop, or `None` if it is not.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.info.stop_reason()
    }

    /// Reports that the attempt is alive, with details of its progress.
    ///
    /// An attempt without a heartbeat for its `heartbeat_timeout` fails with a timeout. When an attempt fails, the
    /// details of its last heartbeat are recorded with the failure, and the next attempt reads them with
    /// [`last_details`](Self::last_details). The heartbeat itself writes nothing, so call it as often as you like.
    /// Details that have no JSON form or are too large are left out, with a warning.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step(heartbeat_timeout = "10s")]
    /// async fn import(cx: StepContext, rows: Vec<String>) -> Result<usize, StepError> {
    ///     let done = cx.last_details::<usize>().unwrap_or(0); // the progress of an earlier attempt
    ///     for (index, row) in rows.iter().enumerate().skip(done) {
    ///         // … import the row …
    ///         cx.heartbeat(index + 1);
    ///     }
    ///     Ok(rows.len())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// assert_eq!(import(StepContext::test(()), vec!["a".into()]).await.unwrap(), 1);
    /// # }
    /// ```
    pub fn heartbeat(&self, details: impl Serialize) {
        self.info.beat(details);
    }

    /// Returns the details of the last heartbeat of the previous attempt, if they can be decoded as a `T`. If that
    /// attempt ended before its first heartbeat, they are those of an attempt before it.
    ///
    /// If the previous attempt ended because its worker was lost, the details may be older than its last heartbeat, by
    /// up to a quarter of the worker's session time.
    pub fn last_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.info.details_before()
    }

    /// Returns the same context without the state.
    pub fn stateless(self) -> StepContext<()> {
        StepContext { state: Arc::new(()), info: self.info, unique: self.unique }
    }
}

/// Implemented by no type: a step cannot call a step.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a step cannot call another step: steps do not nest",
    label = "called from within a step",
    note = "call both from the workflow, one after the other: `ctx.step(first, ..).await?; ctx.step(second, ..).await?`",
    note = "code that several steps share is an ordinary async function without `#[step]`"
)]
pub trait NestedStep {}
