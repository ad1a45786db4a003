//! Steps: pieces of work with effects, their definitions and handles.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use outlast_core::{OpNumber, Policy, RunId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt::{About, Attempt};

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

impl<S> StepContext<S> {
    pub(crate) fn new(state: Arc<S>, about: Arc<About>) -> Self {
        Self { state, about }
    }

    /// A context for calling a step as a plain function in a unit test.
    pub fn test(state: S) -> Self {
        Self::new(Arc::new(state), Arc::new(About::unwatched()))
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
    pub fn step(&self) -> &str {
        &self.about.step
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

    /// The details of the last heartbeat of an earlier attempt that failed, if they are a `T`.
    ///
    /// A crash is no failure: what an attempt said before its worker died is not kept.
    pub fn last_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.about.details_before()
    }

    /// The same context without the state.
    pub fn stateless(self) -> StepContext<()> {
        StepContext { state: Arc::new(()), about: self.about }
    }
}
