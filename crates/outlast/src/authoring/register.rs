//! The arguments of `.register((…))`: workflows, steps, and tuples of them.
//!
//! Two questions are asked one after the other, so that each has its own compile error: is it a workflow, a step or a
//! tuple of them ([`Registrable`]), and does the state of the worker fit ([`CodeFor`]).

use std::marker::PhantomData;

use crate::authoring::registry::Registry;
use crate::authoring::step::{StepCode, StepFn};
use crate::authoring::workflow::{WorkflowDefinition, WorkflowFn};

/// A workflow, a step, or a tuple of up to 24 of them. `M` is always inferred.
///
/// The elements of a tuple may be tuples, so there is no limit to the number of functions in one call.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered with a worker",
    label = "expected functions with `#[workflow]` or `#[step]`, or a tuple of up to 24 of them",
    note = "a longer tuple is split: `.register((a, b)).register((c, d))`, or `.register(((a, b), (c, d)))`",
    note = "to see which one of a tuple it is, register them one by one: `.register(a).register(b)`"
)]
pub trait Registrable<M> {
    /// The definitions of the functions, as a type.
    type Code;
}

/// Code that can be passed to [`register`](crate::WorkerBuilder::register) of a worker with state `S`: for functions
/// that take such code as a parameter.
///
/// ```
/// use std::sync::Arc;
///
/// use outlast::prelude::*;
/// use outlast::{Register, World};
///
/// async fn start_worker<R: Register<(), M>, M>(world: Arc<dyn World>, code: R) -> Result<Worker, Error> {
///     Worker::builder(world).register(code).start().await
/// }
/// ```
pub trait Register<S, M>: Registrable<M, Code: CodeFor<S>> + Sized {
    /// Adds the code to the registry.
    fn register(self, registry: &mut Registry<S>) {
        <Self::Code as CodeFor<S>>::add_to(registry);
    }
}

impl<S, M, R> Register<S, M> for R
where
    R: Registrable<M>,
    R::Code: CodeFor<S>,
{
}

/// Definitions whose steps a worker with state `S` can execute.
pub trait CodeFor<S> {
    /// Adds the definitions to the registry.
    fn add_to(registry: &mut Registry<S>);
}

/// Type-level mark of steps in [`Registrable`].
#[derive(Debug)]
pub struct StepMark<Args>(PhantomData<Args>);

/// Type-level mark of workflows in [`Registrable`].
#[derive(Debug)]
pub struct WorkflowMark<Args>(PhantomData<Args>);

/// Type-level mark of tuples in [`Registrable`].
#[derive(Debug)]
pub struct TupleMark<Marks>(PhantomData<Marks>);

/// The definition of one step, as [`Registrable::Code`].
#[derive(Debug)]
pub struct CodeOfStep<D>(PhantomData<D>);

/// The definition of one workflow, as [`Registrable::Code`].
#[derive(Debug)]
pub struct CodeOfWorkflow<D>(PhantomData<D>);

#[diagnostic::do_not_recommend]
impl<F: StepFn<Args>, Args> Registrable<StepMark<Args>> for F {
    type Code = CodeOfStep<F::Definition>;
}

#[diagnostic::do_not_recommend]
impl<F: WorkflowFn<Args>, Args> Registrable<WorkflowMark<Args>> for F {
    type Code = CodeOfWorkflow<F::Definition>;
}

impl<S: Send + Sync + 'static, D: StepCode<S>> CodeFor<S> for CodeOfStep<D> {
    fn add_to(registry: &mut Registry<S>) {
        registry.add_step::<D>();
    }
}

impl<S: Send + Sync + 'static, D: WorkflowDefinition> CodeFor<S> for CodeOfWorkflow<D> {
    fn add_to(registry: &mut Registry<S>) {
        registry.add_workflow::<D>();
    }
}

macro_rules! tuples {
    ($(($($thing:ident $mark:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($thing: Registrable<$mark>, $mark,)+> Registrable<TupleMark<($($mark,)+)>> for ($($thing,)+) {
            type Code = ($($thing::Code,)+);
        }

        impl<State, $($thing: CodeFor<State>,)+> CodeFor<State> for ($($thing,)+) {
            fn add_to(registry: &mut Registry<State>) {
                $($thing::add_to(registry);)+
            }
        }
    )*};
}
tuples! {
    (A MA)
    (A MA, B MB)
    (A MA, B MB, C MC)
    (A MA, B MB, C MC, D MD)
    (A MA, B MB, C MC, D MD, E ME)
    (A MA, B MB, C MC, D MD, E ME, F MF)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT, U MU)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT, U MU, V MV)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT, U MU, V MV, W MW)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT, U MU, V MV, W MW, X MX)
    (A MA, B MB, C MC, D MD, E ME, F MF, G MG, H MH, I MI, J MJ, K MK, L ML, N MN, O MO, P MP, Q MQ, R MR, S MS, T MT, U MU, V MV, W MW, X MX, Y MY)
}
