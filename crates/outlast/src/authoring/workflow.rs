//! Workflows: durable async functions, their definitions and handles.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use outlast_core::{EndPlan, EndStep, FailureStrategy, Policy, RunEnd};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::context::Context;
use crate::authoring::step::{Step, StepHandle, assert_priority, assert_queue};
use crate::error::Error;

/// The definition of a workflow: its durable name, version, types and code. Implemented by `#[workflow]`.
pub trait WorkflowDefinition: Sized + 'static {
    /// The input type. Several parameters are a tuple.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// The output type.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The durable name.
    const NAME: &'static str;
    /// Earlier names, under which runs may have been started.
    const WAS: &'static [&'static str];
    /// The version of new runs.
    const VERSION: u32;
    /// The queue of its runs, or `None` for the default queue.
    const QUEUE: Option<&'static str> = None;
    /// The priority of its runs.
    const PRIORITY: u8 = 0;
    /// What is decided about the ends of its runs.
    fn ending() -> EndPlan {
        EndPlan::new()
    }
    /// Calls the workflow.
    fn run(ctx: Context, input: Self::Input) -> RunFuture<Self>;
    /// Validates an input before a run is started.
    ///
    /// # Errors
    ///
    /// The reason why the start is rejected.
    fn check(_input: &Self::Input) -> Result<(), Error> {
        Ok(())
    }
}

/// Converts the result of a `check` into an error of kind `Invalid`. Used by the macros.
#[doc(hidden)]
pub fn checked<E: fmt::Display + 'static>(result: Result<(), E>) -> Result<(), Error> {
    result.map_err(|error| {
        let mut error = Some(error);
        // An `outlast::Error` keeps its code and details; of other errors only the text is used.
        let own = (&mut error as &mut dyn Any).downcast_mut::<Option<Error>>().and_then(Option::take);
        let shown = || Error::msg(error.map_or_else(String::new, |error| error.to_string()));
        own.unwrap_or_else(shown).into_invalid()
    })
}

/// The plan of a workflow with these arguments. Used by the macros.
#[doc(hidden)]
pub fn end_plan(on_failure: Option<FailureStrategy>, on_end: Option<EndStep>) -> EndPlan {
    let mut plan = EndPlan::new();
    (plan.on_failure, plan.on_end) = (on_failure, on_end);
    plan
}

/// The step of `on_end`. Used by the macros.
#[doc(hidden)]
pub fn end_step<H, M>(step: H) -> EndStep
where
    H: StepHandle<M, Input = RunEnd>,
{
    EndStep::new(step.name(), step.policy())
}

/// Calls a `check`. A panic refuses the start.
pub(crate) fn catch_check_panic(check: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    result.unwrap_or_else(|panic| {
        let panic = crate::replay::panic_text(&*panic);
        Err(Error::invalid(format!("the workflow's check panicked: {panic}; fix the check")))
    })
}

/// The future of a run: the future that the function of a workflow returns.
#[must_use = "a run does nothing unless a worker polls it"]
pub struct RunFuture<D: WorkflowDefinition> {
    future: Pin<Box<dyn Future<Output = Result<D::Output, Error>> + Send>>,
}

impl<D: WorkflowDefinition> RunFuture<D> {
    /// Creates the future of a run from the future of a workflow's code.
    pub fn new(future: impl Future<Output = Result<D::Output, Error>> + Send + 'static) -> Self {
        Self { future: Box::pin(future) }
    }
}

impl<D: WorkflowDefinition> Future for RunFuture<D> {
    type Output = Result<D::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

impl<D: WorkflowDefinition> fmt::Debug for RunFuture<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunFuture({})", D::NAME)
    }
}

/// A function with the attribute `#[workflow]`. `Args` are its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "expected a function with `#[workflow]`"
)]
pub trait WorkflowFn<Args>: Send + Sync + 'static {
    /// The definition of the workflow.
    type Definition: WorkflowDefinition;
}

macro_rules! workflow_fns {
    ($(($($arg:ident),*))*) => {$(
        impl<F, D, $($arg,)*> WorkflowFn<(Context, $($arg,)*)> for F
        where
            F: Fn(Context, $($arg),*) -> RunFuture<D> + Send + Sync + 'static,
            D: WorkflowDefinition,
        {
            type Definition = D;
        }
    )*};
}
workflow_fns! { () (A) (A, B) (A, B, C) (A, B, C, D1) (A, B, C, D1, E) (A, B, C, D1, E, G) }

/// A handle to a workflow, as accepted by [`Client::start`](crate::Client::start): a function with `#[workflow]`, or a
/// [`Workflow`] constant. `M` distinguishes the two and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "expected a function with `#[workflow]` or a `Workflow` constant"
)]
pub trait WorkflowHandle<M> {
    /// The input type.
    type Input: Serialize;
    /// The output type.
    type Output: DeserializeOwned;
    /// Returns the durable name.
    fn name(&self) -> &'static str;
    /// Returns the version of new runs.
    fn version(&self) -> u32;
    /// Returns the queue of its runs, or `None` for the default queue.
    fn queue(&self) -> Option<&'static str> {
        None
    }
    /// Returns the priority of its runs.
    fn priority(&self) -> u8 {
        0
    }
    /// Returns what is decided about the ends of its runs: their failure strategy, and the step after their end.
    fn ending(&self) -> EndPlan {
        EndPlan::new()
    }
    /// Validates an input before a run is started.
    ///
    /// # Errors
    ///
    /// The reason why the start is rejected.
    fn check(&self, _input: &Self::Input) -> Result<(), Error> {
        Ok(())
    }
}

#[diagnostic::do_not_recommend]
impl<F, Args> WorkflowHandle<Args> for F
where
    F: WorkflowFn<Args>,
{
    type Input = <F::Definition as WorkflowDefinition>::Input;
    type Output = <F::Definition as WorkflowDefinition>::Output;

    fn name(&self) -> &'static str {
        F::Definition::NAME
    }

    fn version(&self) -> u32 {
        F::Definition::VERSION
    }

    fn queue(&self) -> Option<&'static str> {
        F::Definition::QUEUE
    }

    fn priority(&self) -> u8 {
        F::Definition::PRIORITY
    }

    fn ending(&self) -> EndPlan {
        F::Definition::ending()
    }

    fn check(&self, input: &Self::Input) -> Result<(), Error> {
        F::Definition::check(input)
    }
}

/// Validates an input before a run is started.
type InputCheck<I> = fn(&I) -> Result<(), Error>;

/// A handle to a workflow that consists of its name, version and types, without its function.
///
/// Handles are for programs that only start the workflow, and for contracts that several programs share. The worker
/// that executes the workflow assigns [its function](crate::WorkerBuilder::workflow).
///
/// ```
/// use outlast::Workflow;
/// const CHECKOUT: Workflow<u64, String> = Workflow::new("checkout");
/// assert_eq!(CHECKOUT.name(), "checkout");
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    was: &'static [&'static str],
    version: u32,
    queue: Option<&'static str>,
    priority: u8,
    on_failure: Option<FailureStrategy>,
    on_end: Option<(&'static str, Policy)>,
    check: Option<InputCheck<I>>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// Creates a handle to version 1 of the workflow with this durable name.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            was: &[],
            version: 1,
            queue: None,
            priority: 0,
            on_failure: None,
            on_end: None,
            check: None,
            types: PhantomData,
        }
    }

    /// Sets the version of new runs.
    #[must_use]
    pub const fn at_version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// Sets earlier names, under which runs may have been started.
    #[must_use]
    pub const fn was(self, names: &'static [&'static str]) -> Self {
        Self { was: names, ..self }
    }

    /// Sets the queue of its runs, unless the start sets another one.
    ///
    /// # Panics
    ///
    /// If the name is empty or longer than 128 bytes.
    #[must_use]
    #[track_caller]
    pub const fn queue(self, queue: &'static str) -> Self {
        assert_queue(queue);
        Self { queue: Some(queue), ..self }
    }

    /// Sets the priority of its runs, unless the start sets another one.
    ///
    /// # Panics
    ///
    /// If it is higher than 9.
    #[must_use]
    #[track_caller]
    pub const fn priority(self, priority: u8) -> Self {
        assert_priority(priority);
        Self { priority, ..self }
    }

    /// Sets what happens when a run fails, as `#[workflow(on_failure = …)]` does.
    ///
    /// ```
    /// use outlast::{FailureStrategy, Retry, Workflow};
    /// const IMPORT: Workflow<u64, ()> = Workflow::new("import").on_failure(FailureStrategy::Retry(Retry::WORKFLOW));
    /// # assert_eq!(IMPORT.name(), "import");
    /// ```
    #[must_use]
    pub const fn on_failure(self, strategy: FailureStrategy) -> Self {
        Self { on_failure: Some(strategy), ..self }
    }

    /// Sets the step that is started when a run has ended, as `#[workflow(on_end = …)]` does.
    ///
    /// ```
    /// use outlast::{RunEnd, Step, Workflow};
    /// const NOTIFY: Step<RunEnd, ()> = Step::new("notify");
    /// const IMPORT: Workflow<u64, ()> = Workflow::new("import").on_end(NOTIFY);
    /// # assert_eq!(IMPORT.name(), "import");
    /// ```
    #[must_use]
    pub const fn on_end<O2>(self, step: Step<RunEnd, O2>) -> Self {
        Self { on_end: Some((step.name(), step.default_policy())), ..self }
    }

    pub(crate) fn end_plan(&self) -> EndPlan {
        let mut plan = EndPlan::new();
        plan.on_failure = self.on_failure;
        plan.on_end = self.on_end.map(|(step, policy)| EndStep::new(step, policy));
        plan
    }

    /// Sets a function that validates the input before a run is started. If it returns an error, the start fails with
    /// the kind `Invalid`, and nothing is written.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// const CHECKOUT: Workflow<u64, String> = Workflow::new("checkout").check(check_cents);
    ///
    /// fn check_cents(cents: &u64) -> Result<(), Error> {
    ///     if *cents > 0 { Ok(()) } else { Err(Error::msg("an order costs something")) }
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    ///
    /// let client = Client::new(outlast::open("memory:").await?);
    /// let error = client.start(CHECKOUT, 0).await.unwrap_err();
    /// assert_eq!(error.to_string(), "an order costs something");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub const fn check(self, check: fn(&I) -> Result<(), Error>) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Returns the durable name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the version of new runs.
    pub const fn version(&self) -> u32 {
        self.version
    }

    pub(crate) const fn earlier_names(&self) -> &'static [&'static str] {
        self.was
    }

    pub(crate) fn checked(&self, input: &I) -> Result<(), Error> {
        match self.check {
            Some(check) => check(input).map_err(Error::into_invalid),
            None => Ok(()),
        }
    }
}

impl<I, O> Clone for Workflow<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Workflow<I, O> {}

impl<I, O> fmt::Debug for Workflow<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Workflow({})", self.name)
    }
}

#[diagnostic::do_not_recommend]
impl<I: Serialize, O: DeserializeOwned> WorkflowHandle<crate::authoring::step::ByName> for Workflow<I, O> {
    type Input = I;
    type Output = O;

    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn queue(&self) -> Option<&'static str> {
        self.queue
    }

    fn priority(&self) -> u8 {
        self.priority
    }

    fn ending(&self) -> EndPlan {
        self.end_plan()
    }

    fn check(&self, input: &I) -> Result<(), Error> {
        self.checked(input)
    }
}
