//! Reconciling: checks whether an earlier attempt at a step had its effect.

use std::future::Future;
use std::pin::Pin;

use outlast_core::FailureKind;

use crate::authoring::step::{StepContext, StepDefinition};
use crate::error::StepError;

/// The future of a `reconcile` function: the output of an earlier attempt, or `None`.
pub type Reconciling<D> =
    Pin<Box<dyn Future<Output = Result<Option<<D as StepDefinition>::Output>, StepError>> + Send>>;

/// A function for `#[step(reconcile = …)]`. It has the parameters of the step, with or without the context, and returns
/// `Result<Option<O>, E>`. `M` is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot reconcile this step",
    label = "expected an `async fn` with the step's parameters that returns `Result<Option<{O}>, StepError>`",
    note = "it takes the step's context by the same type, or none at all"
)]
pub trait ReconcileFn<S, I, O, M> {
    /// Calls the function.
    fn look(
        self,
        cx: StepContext<S>,
        input: I,
    ) -> Pin<Box<dyn Future<Output = Result<Option<O>, StepError>> + Send>>;
}

/// Type-level mark of functions that take the context.
#[derive(Debug)]
pub struct WithContext<Args>(std::marker::PhantomData<Args>);

/// Type-level mark of functions that do not take the context.
#[derive(Debug)]
pub struct WithoutContext<Args>(std::marker::PhantomData<Args>);

/// `$input` is the type of the input, and the pattern that destructures it.
macro_rules! reconcile_fns {
    ($(($($arg:ident),*) in $input:tt)*) => {$(
        #[diagnostic::do_not_recommend]
        #[allow(non_snake_case, reason = "the type parameters name the arguments")]
        impl<F, Fut, S, O, E, $($arg),*> ReconcileFn<S, $input, O, WithContext<($($arg,)*)>> for F
        where
            F: Fn(StepContext<S>, $($arg),*) -> Fut,
            Fut: Future<Output = Result<Option<O>, E>> + Send + 'static,
            E: Into<StepError>,
        {
            fn look(
                self,
                cx: StepContext<S>,
                $input: $input,
            ) -> Pin<Box<dyn Future<Output = Result<Option<O>, StepError>> + Send>> {
                let looking = self(cx, $($arg),*);
                Box::pin(async move { looking.await.map_err(Into::into) })
            }
        }

        #[diagnostic::do_not_recommend]
        #[allow(non_snake_case, reason = "the type parameters name the arguments")]
        impl<F, Fut, S, O, E, $($arg),*> ReconcileFn<S, $input, O, WithoutContext<($($arg,)*)>> for F
        where
            F: Fn($($arg),*) -> Fut,
            Fut: Future<Output = Result<Option<O>, E>> + Send + 'static,
            E: Into<StepError>,
        {
            fn look(
                self,
                _cx: StepContext<S>,
                $input: $input,
            ) -> Pin<Box<dyn Future<Output = Result<Option<O>, StepError>> + Send>> {
                let looking = self($($arg),*);
                Box::pin(async move { looking.await.map_err(Into::into) })
            }
        }
    )*};
}
reconcile_fns! {
    () in ()
    (A1) in A1
    (A1, A2) in (A1, A2)
    (A1, A2, A3) in (A1, A2, A3)
    (A1, A2, A3, A4) in (A1, A2, A3, A4)
    (A1, A2, A3, A4, A5) in (A1, A2, A3, A4, A5)
    (A1, A2, A3, A4, A5, A6) in (A1, A2, A3, A4, A5, A6)
}

/// Calls a step's `reconcile` function. For the macros.
#[doc(hidden)]
pub fn reconciling<D, S, F, M>(look: F, cx: StepContext<S>, input: D::Input) -> Reconciling<D>
where
    D: StepDefinition,
    F: ReconcileFn<S, D::Input, D::Output, M>,
{
    look.look(cx, input)
}

/// The failure of an at-most-once step whose `reconcile` function failed: whether the effect happened is unknown, so
/// the step is not attempted again.
pub(crate) fn outcome_unknown(error: StepError) -> StepError {
    let (mut failure, _) = error.into_parts();
    failure.kind = FailureKind::Unknown;
    failure.message = format!(
        "the worker was lost while it attempted the step, and `reconcile` failed: {}",
        failure.message
    );
    StepError::of_failure(failure)
}
