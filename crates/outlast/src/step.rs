//! Steps: pieces of work with effects, their definitions and handles.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use outlast_core::{OpNumber, Policy, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::error::StepError;

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
}

/// A step that a worker with state `S` can attempt. Made by `#[step]`.
#[diagnostic::on_unimplemented(
    message = "this step needs a worker with another state than `{S}`",
    label = "the step's `StepContext<…>` names the state it needs",
    note = "give the worker that state with `Worker::builder(world).state(…)` before `.register(…)`"
)]
pub trait StepCode<S>: StepDefinition + Sized {
    /// One attempt.
    fn attempt(cx: StepContext<S>, input: Self::Input) -> Attempt<Self>;
}

/// One attempt at a step: the future that a step's function returns.
///
/// Awaiting it runs the step's code, so a step can be called as a plain function in a unit test.
#[must_use = "an attempt does nothing unless it is awaited"]
pub struct Attempt<D: StepDefinition> {
    future: Pin<Box<dyn Future<Output = Result<D::Output, StepError>> + Send>>,
}

impl<D: StepDefinition> Attempt<D> {
    /// The attempt that `future` is.
    pub fn new(future: impl Future<Output = Result<D::Output, StepError>> + Send + 'static) -> Self {
        Self { future: Box::pin(future) }
    }
}

impl<D: StepDefinition> Future for Attempt<D> {
    type Output = Result<D::Output, StepError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<D: StepDefinition> fmt::Debug for Attempt<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({})", D::NAME)
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

/// A step by its name and types alone, for code that does not have its function.
///
/// ```
/// use outlast::Step;
/// const CHARGE: Step<u64, String> = Step::new("charge");
/// assert_eq!(CHARGE.name(), "charge");
/// ```
pub struct Step<I, O> {
    name: &'static str,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Step<I, O> {
    /// The step of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// The durable name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
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
        &[]
    }

    fn policy(&self) -> Policy {
        Policy::DEFAULT
    }
}

/// What an attempt knows: the worker's state, its key, and whether it should stop.
#[derive(Debug)]
pub struct StepContext<S = ()> {
    state: Arc<S>,
    about: Arc<About>,
}

#[derive(Debug)]
pub(crate) struct About {
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
    pub(crate) attempt: u32,
    pub(crate) stop: CancellationToken,
}

impl<S> StepContext<S> {
    pub(crate) fn new(state: Arc<S>, about: Arc<About>) -> Self {
        Self { state, about }
    }

    /// A context for calling a step as a plain function in a unit test.
    pub fn test(state: S) -> Self {
        let run = RunId::from_bits(0);
        let about = About { run, op: OpNumber(0), attempt: 1, stop: CancellationToken::new() };
        Self::new(Arc::new(state), Arc::new(about))
    }

    /// The worker's state, as given to `Worker::builder(…).state(…)`.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The run this attempt works for.
    pub fn run(&self) -> RunId {
        self.about.run
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// A key that is the same in every attempt at this step of this run, and differs from that of any
    /// other: give it to the outside world, so that a repeated effect is recognised.
    pub fn key(&self) -> String {
        // Runs have one generation until they can be continued or rewound.
        format!("{}.0.{}", self.about.run, self.about.op)
    }

    /// Whether the run was cancelled, or the worker must let go of it. The attempt may stop early.
    pub fn is_cancelled(&self) -> bool {
        self.about.stop.is_cancelled()
    }

    /// Completes when [`is_cancelled`](Self::is_cancelled) becomes true.
    pub async fn cancelled(&self) {
        self.about.stop.cancelled().await;
    }

    /// The same context without the state.
    pub fn stateless(self) -> StepContext<()> {
        StepContext { state: Arc::new(()), about: self.about }
    }
}
