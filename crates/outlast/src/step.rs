//! Steps: pieces of work with effects, their definitions and handles.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use outlast_core::duration::duration;
use outlast_core::limits::{NAME_BYTES_MAX, PRIORITY_MAX};
use outlast_core::{AttemptId, Headers, OpNumber, Policy, Retry, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::{Attempt, AttemptInfo, StopReason};
use crate::error::StepError;
use crate::reconcile::Reconciling;

/// What a step is: its durable name, its types, how it is attempted. Made by `#[step]`.
pub trait StepDefinition: 'static {
    /// What the step takes; several parameters are a tuple.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What the step returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The durable name.
    const NAME: &'static str;
    /// Names it had before, under which histories may know it.
    const WAS: &'static [&'static str];
    /// How it is attempted.
    fn policy() -> Policy;
    /// The step's key for this input, when the step says what it is made of.
    ///
    /// # Errors
    ///
    /// When that has no JSON.
    fn unique(_input: &Self::Input) -> Result<Option<String>, StepError> {
        Ok(None)
    }
}

/// A step that a worker with state `S` can attempt. Made by `#[step]`.
#[diagnostic::on_unimplemented(
    message = "this step needs a worker with another state than `{S}`",
    label = "the step's `StepContext<…>` names the state it needs",
    note = "give the worker that state with `Worker::builder(world).state(…)` before `.register(…)`"
)]
pub trait StepCode<S>: StepDefinition + Sized {
    /// Whether the step says how to look for the effect of an earlier attempt.
    const RECONCILES: bool = false;
    /// One attempt.
    fn attempt(cx: StepContext<S>, input: Self::Input) -> Attempt<Self>;
    /// Looks whether an earlier attempt had its effect.
    fn reconcile(_cx: StepContext<S>, _input: Self::Input) -> Reconciling<Self> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A function made by `#[step]`. `Args` are its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "expected a function with `#[step]`",
    note = "a plain function can be a step in place: `ctx.call(\"name\", input, async |input| …)`"
)]
pub trait StepFn<Args>: Send + Sync + 'static {
    /// The definition that the function carries.
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

/// Anything that names a step for `ctx.step`: a function with `#[step]`, or a [`Step`] constant.
/// `M` keeps the two apart and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step",
    label = "expected a function with `#[step]` or a `Step` constant",
    note = "a plain function can be a step in place: `ctx.call(\"name\", input, async |input| …)`"
)]
pub trait StepHandle<M> {
    /// What the step takes.
    type Input: Serialize;
    /// What the step returns.
    type Output: DeserializeOwned;
    /// The durable name.
    fn name(&self) -> &'static str;
    /// Names it had before.
    fn was(&self) -> &'static [&'static str];
    /// How it is attempted.
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

/// A step by its name, types and policy alone, for code that does not have its function: a contract that
/// programs share. The worker's builder gives it [its function](crate::WorkerBuilder::step).
///
/// ```
/// use outlast::{Retry, Step};
///
/// const CHARGE: Step<u64, String> = Step::new("charge").retry(Retry::api()).timeout("30s");
/// assert_eq!(CHARGE.name(), "charge");
/// ```
///
/// Its methods make constants, so a value that makes no sense does not compile there.
pub struct Step<I, O> {
    name: &'static str,
    was: &'static [&'static str],
    policy: Policy,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Step<I, O> {
    /// The step of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, was: &[], policy: Policy::DEFAULT, types: PhantomData }
    }

    /// The same step with names it had before, under which histories may know it.
    #[must_use]
    pub const fn was(self, names: &'static [&'static str]) -> Self {
        Self { was: names, ..self }
    }

    /// Attempts in all, the first included.
    ///
    /// # Panics
    ///
    /// When `attempts` is 0.
    #[must_use]
    #[track_caller]
    pub const fn attempts(self, attempts: u32) -> Self {
        let retry = self.policy.retry.attempts(attempts);
        self.retry(retry)
    }

    /// When a failed attempt is followed by another.
    #[must_use]
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.policy.retry = retry;
        self
    }

    /// How long one attempt may take, as text: `"30s"`.
    ///
    /// # Panics
    ///
    /// When the text is not a duration.
    #[must_use]
    #[track_caller]
    pub const fn timeout(mut self, timeout: &str) -> Self {
        self.policy.timeout = Some(duration(timeout));
        self
    }

    /// How long an attempt may go without a [heartbeat](StepContext::heartbeat), as text.
    ///
    /// # Panics
    ///
    /// When the text is not a duration.
    #[must_use]
    #[track_caller]
    pub const fn heartbeat_timeout(mut self, timeout: &str) -> Self {
        self.policy.heartbeat_timeout = Some(duration(timeout));
        self
    }

    /// How many attempts at the step one worker makes at the same time.
    ///
    /// # Panics
    ///
    /// When `limit` is 0.
    #[must_use]
    #[track_caller]
    pub const fn limit(mut self, limit: u32) -> Self {
        assert!(limit > 0, "a step with a limit of 0 is never attempted");
        self.policy.limit = Some(limit);
        self
    }

    /// There is no second attempt, not even after a crash; then the step fails as unknown.
    #[must_use]
    pub const fn at_most_once(mut self) -> Self {
        self.policy.is_at_most_once = true;
        self
    }

    /// The queue by which the step travels to the workers that serve it; see
    /// [`StepOperation::queue`](crate::StepOperation::queue).
    ///
    /// # Panics
    ///
    /// When the name is empty or longer than 128 bytes.
    #[must_use]
    #[track_caller]
    pub const fn queue(mut self, queue: &'static str) -> Self {
        assert_queue(queue);
        self.policy.queue = Some(queue);
        self
    }

    /// How urgent the step is among those of its queue; see
    /// [`StepOperation::priority`](crate::StepOperation::priority).
    ///
    /// # Panics
    ///
    /// When it is higher than 9.
    #[must_use]
    #[track_caller]
    pub const fn priority(mut self, priority: u8) -> Self {
        assert_priority(priority);
        self.policy.priority = Some(priority);
        self
    }

    /// The durable name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn earlier_names(&self) -> &'static [&'static str] {
        self.was
    }

    pub(crate) const fn manner(&self) -> Policy {
        self.policy
    }
}

#[track_caller]
pub(crate) const fn assert_queue(queue: &str) {
    assert!(!queue.is_empty() && queue.len() <= NAME_BYTES_MAX, "the name of a queue has 1 to 128 bytes");
}

#[track_caller]
pub(crate) const fn assert_priority(priority: u8) {
    assert!(priority <= PRIORITY_MAX, "a priority is a number from 0, the usual, to 9, the soonest");
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

/// Marks a [`Step`] constant among step handles.
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

/// What an attempt knows: the worker's state, its key, and whether it should stop.
#[derive(Debug)]
pub struct StepContext<S = ()> {
    state: Arc<S>,
    about: Arc<AttemptInfo>,
    /// The key that is made of the input.
    unique: Option<Arc<str>>,
}

impl<S> Clone for StepContext<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), about: self.about.clone(), unique: self.unique.clone() }
    }
}

impl<S> StepContext<S> {
    pub(crate) fn new(state: Arc<S>, about: Arc<AttemptInfo>, unique: Option<String>) -> Self {
        Self { state, about, unique: unique.map(Into::into) }
    }

    /// A context for calling a step as a plain function in a unit test.
    pub fn test(state: S) -> Self {
        Self::new(Arc::new(state), Arc::new(AttemptInfo::unwatched()), None)
    }

    /// The worker's state, as given to `Worker::builder(…).state(…)`.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The run this attempt works for.
    pub fn run(&self) -> RunId {
        self.about.run
    }

    /// The name of the step, as the workflow asked for it; empty in a [test](Self::test).
    pub fn step_name(&self) -> &str {
        &self.about.step
    }

    /// Not possible: steps do not nest. It is here for the compiler to say so.
    #[doc(hidden)]
    pub fn step<C: NestedStep, I>(&self, step: C, input: I) -> std::future::Ready<()> {
        drop((step, input));
        std::future::ready(())
    }

    /// What travels with the run that asked for the step: trace context, the caller's identity. A queued step
    /// has them too. Empty in a [test](Self::test).
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
        &self.about.headers
    }

    /// The number of the operation that asked for the step.
    pub fn op(&self) -> OpNumber {
        self.about.op
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// A key that is the same in every attempt at this step of this run, and differs from that of any
    /// other: give it to the outside world, so that a repeated effect is recognised.
    ///
    /// With `#[step(unique = "order.id, action")]` it is made of the step's name and these values of the
    /// input instead, and so is the same in every run that asks for the same thing:
    ///
    /// * `charge:[42,"pay"]`: the name, a colon, and the values as a JSON array without spaces, the
    ///   members of objects in the order of their names' bytes.
    /// * `charge:sha256:…` when that is longer than 255 bytes: 64 digits of the array's SHA-256.
    /// * The name is the last one in `was`, the oldest, where there is one: a rename keeps the keys.
    ///
    /// In a [test](Self::test) of the function alone it is always the run's.
    ///
    /// ```
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
            // Runs have one generation until they can be continued or rewound.
            None => format!("{}.0.{}", self.about.run, self.about.op),
        }
    }

    /// The id of this attempt, which no other attempt has; in a [test](Self::test) always the same.
    ///
    /// Attempts that follow a crash repeat the [number](Self::attempt) of the one before, not its id. To recognise
    /// a repeated effect use [`key`](Self::key), which is the same in every attempt.
    pub fn attempt_id(&self) -> AttemptId {
        self.about.id
    }

    /// Whether the attempt is told to stop, for [a reason](Self::stop_reason): its run was cancelled, the workflow
    /// does not wait for the step any more, or the worker must let go of the run. The attempt may stop early.
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
    ///         () = cx.cancelled() => Err(StepError::msg("nobody waits for the price")),
    ///     }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # assert_eq!(price(StepContext::test(()), "shop".into()).await.unwrap(), 1);
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        self.about.stopped().await;
    }

    /// Why the attempt is told to stop; `None` as long as it is not.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.about.stop_reason()
    }

    /// Says that the attempt is alive, and how far it has come.
    ///
    /// An attempt that does not say so for its `heartbeat_timeout` fails with a timeout. When an attempt
    /// fails, the details of its last heartbeat are recorded with that, and the next attempt finds them
    /// as [`last_details`](Self::last_details). A heartbeat itself is not recorded, and costs next to
    /// nothing. Details that are no payload, because they have no JSON or are too large, are left out.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step(heartbeat_timeout = "10s")]
    /// async fn import(cx: StepContext, rows: Vec<String>) -> Result<usize, StepError> {
    ///     let done = cx.last_details::<usize>().unwrap_or(0); // by an earlier attempt
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
        self.about.beat(details);
    }

    /// The details of the last heartbeat of the attempt before this one, if they are a `T`: of one that failed,
    /// or of one whose worker was lost. In the latter case they may be older than its last heartbeat, by as much
    /// as a quarter of the worker's session time.
    pub fn last_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.about.details_before()
    }

    /// The same context without the state.
    pub fn stateless(self) -> StepContext<()> {
        StepContext { state: Arc::new(()), about: self.about, unique: self.unique }
    }
}

/// What could be called as a step from within a step: nothing.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a step cannot call another step: steps do not nest",
    label = "called from within a step",
    note = "call both from the workflow, one after the other: `ctx.step(first, ..).await?; ctx.step(second, ..).await?`",
    note = "code that several steps share is an ordinary async function without `#[step]`"
)]
pub trait NestedStep {}
