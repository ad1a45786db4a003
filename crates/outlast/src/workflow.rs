//! Workflows: durable async functions, their definitions and handles.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::Error;

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
    /// Calls the workflow.
    fn run(ctx: Context, input: Self::Input) -> RunFuture<Self>;
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
}

/// A workflow by its name and types alone, for programs that only start it.
///
/// ```
/// use outlast::Workflow;
/// const CHECKOUT: Workflow<u64, String> = Workflow::new("checkout");
/// assert_eq!(CHECKOUT.name(), "checkout");
/// ```
pub struct Workflow<I, O> {
    name: &'static str,
    version: u32,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Workflow<I, O> {
    /// Version 1 of the workflow of this name.
    pub const fn new(name: &'static str) -> Self {
        Self { name, version: 1, types: PhantomData }
    }

    /// The same workflow, for runs of another version.
    #[must_use]
    pub const fn at_version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    /// The durable name.
    pub const fn name(&self) -> &'static str {
        self.name
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
}
