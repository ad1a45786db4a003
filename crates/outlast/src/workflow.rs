//! Workflows: durable async functions, their definitions and handles.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::Error;
use crate::step::{assert_priority, assert_queue};

/// What a workflow is: its durable name, version and types, and its code. Made by `#[workflow]`.
pub trait WorkflowDefinition: Sized + 'static {
    /// What the workflow takes; several parameters are a tuple.
    type Input: Serialize + DeserializeOwned + Send + 'static;
    /// What the workflow returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// The durable name.
    const NAME: &'static str;
    /// Names it had before, under which runs may know it.
    const WAS: &'static [&'static str];
    /// The version that new runs get.
    const VERSION: u32;
    /// The queue in which its runs stand, if it says so.
    const QUEUE: Option<&'static str> = None;
    /// How urgent its runs are.
    const PRIORITY: u8 = 0;
    /// Calls the workflow.
    fn run(ctx: Context, input: Self::Input) -> RunFuture<Self>;
    /// Judges an input before a run begins.
    ///
    /// # Errors
    ///
    /// Why no run begins with it.
    fn check(_input: &Self::Input) -> Result<(), Error> {
        Ok(())
    }
}

/// What a `check` says, as an error of the start, for the macros.
#[doc(hidden)]
pub fn checked<E: fmt::Display + 'static>(judged: Result<(), E>) -> Result<(), Error> {
    judged.map_err(|error| {
        let mut error = Some(error);
        // Our own error keeps its code and details; all others are what they show.
        let own = (&mut error as &mut dyn Any).downcast_mut::<Option<Error>>().and_then(Option::take);
        let shown = || Error::msg(error.map_or_else(String::new, |error| error.to_string()));
        own.unwrap_or_else(shown).into_invalid()
    })
}

/// Asks a `check`, whatever it does: one that panics refuses the start.
pub(crate) fn contained(check: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    judged.unwrap_or_else(|panic| {
        let panic = crate::replay::panic_text(&*panic);
        Err(Error::invalid(format!("the workflow's check panicked: {panic}; mend the check")))
    })
}

/// A run's future: what a workflow's function returns.
#[must_use = "a run does nothing unless a worker polls it"]
pub struct RunFuture<D: WorkflowDefinition> {
    future: Pin<Box<dyn Future<Output = Result<D::Output, Error>> + Send>>,
}

impl<D: WorkflowDefinition> RunFuture<D> {
    /// The run that `future` is.
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

/// A function made by `#[workflow]`. `Args` are its parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "expected a function with `#[workflow]`"
)]
pub trait WorkflowFn<Args>: Send + Sync + 'static {
    /// The definition that the function carries.
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

/// Anything that names a workflow for `client.start`: a function with `#[workflow]`, or a
/// [`Workflow`] constant. `M` keeps the two apart and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a workflow",
    label = "expected a function with `#[workflow]` or a `Workflow` constant"
)]
pub trait WorkflowHandle<M> {
    /// What the workflow takes.
    type Input: Serialize;
    /// What the workflow returns.
    type Output: DeserializeOwned;
    /// The durable name.
    fn name(&self) -> &'static str;
    /// The version that new runs get.
    fn version(&self) -> u32;
    /// The queue in which its runs stand, if it says so.
    fn queue(&self) -> Option<&'static str> {
        None
    }
    /// How urgent its runs are.
    fn priority(&self) -> u8 {
        0
    }
    /// Judges an input before a run begins.
    ///
    /// # Errors
    ///
    /// Why no run begins with it.
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

    fn check(&self, input: &Self::Input) -> Result<(), Error> {
        F::Definition::check(input)
    }
}

/// Judges an input before a run begins.
type InputCheck<I> = fn(&I) -> Result<(), Error>;

/// A workflow by its name, version and types alone, for programs that only start it: a contract that
/// programs share. The worker's builder gives it [its function](crate::WorkerBuilder::workflow).
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
    check: Option<InputCheck<I>>,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// Version 1 of the workflow of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, was: &[], version: 1, queue: None, priority: 0, check: None, types: PhantomData }
    }

    /// The same workflow, for runs of another version.
    #[must_use]
    pub const fn at_version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The same workflow with names it had before, under which runs may know it.
    #[must_use]
    pub const fn was(self, names: &'static [&'static str]) -> Self {
        Self { was: names, ..self }
    }

    /// The same workflow with a queue in which its runs stand, unless their start says otherwise.
    ///
    /// # Panics
    ///
    /// When the name is empty or longer than 128 bytes.
    #[must_use]
    #[track_caller]
    pub const fn queue(self, queue: &'static str) -> Self {
        assert_queue(queue);
        Self { queue: Some(queue), ..self }
    }

    /// The same workflow with a priority that its runs have, unless their start says otherwise.
    ///
    /// # Panics
    ///
    /// When it is higher than 9.
    #[must_use]
    #[track_caller]
    pub const fn priority(self, priority: u8) -> Self {
        assert_priority(priority);
        Self { priority, ..self }
    }

    /// The same workflow with a function that judges an input before a run begins: its error refuses the
    /// start, with kind `Invalid`, and nothing is written.
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

    /// The durable name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The version.
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
impl<I: Serialize, O: DeserializeOwned> WorkflowHandle<crate::step::ByName> for Workflow<I, O> {
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

    fn check(&self, input: &I) -> Result<(), Error> {
        self.checked(input)
    }
}
