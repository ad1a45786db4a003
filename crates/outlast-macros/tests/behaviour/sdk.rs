//! As much of the SDK as the expansions name.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

macro_rules! error {
    ($name:ident) => {
        #[derive(Debug)]
        pub struct $name(pub String);
        impl<E: StdError + Send + Sync + 'static> From<E> for $name {
            fn from(error: E) -> Self {
                Self(error.to_string())
            }
        }
    };
}
error!(StepError);
error!(Error);

macro_rules! future {
    ($name:ident, $definition:ident, $error:ident) => {
        #[must_use]
        pub struct $name<D: $definition>(Boxed<Result<D::Output, $error>>);
        impl<D: $definition> $name<D> {
            pub fn new(future: impl Future<Output = Result<D::Output, $error>> + Send + 'static) -> Self {
                Self(Box::pin(future))
            }
        }
        impl<D: $definition> Future for $name<D> {
            type Output = Result<D::Output, $error>;
            fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
                self.0.as_mut().poll(cx)
            }
        }
        impl<D: $definition> fmt::Debug for $name<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(D::NAME)
            }
        }
    };
}
future!(Attempt, StepDefinition, StepError);
future!(RunFuture, WorkflowDefinition, Error);

/// Stands for `Serialize + DeserializeOwned`.
pub trait Value: Send + 'static {}
impl<T: Send + 'static> Value for T {}

pub trait StepDefinition: 'static {
    type Input: Value;
    type Output: Value;
    const NAME: &'static str;
    const WAS: &'static [&'static str];
    fn policy() -> Policy;
    fn unique(_input: &Self::Input) -> Result<Option<String>, StepError> {
        Ok(None)
    }
}

/// Stands for the key that the SDK makes of values.
pub fn unique_key<D: StepDefinition>(values: &impl fmt::Debug) -> Result<Option<String>, StepError> {
    Ok(Some(format!("{} {values:?}", D::NAME)))
}

pub trait StateFor<Needed, Step>: Sized {
    fn context(cx: StepContext<Self>) -> StepContext<Needed>;
}

impl<S, Step> StateFor<S, Step> for S {
    fn context(cx: StepContext<S>) -> StepContext<S> {
        cx
    }
}

pub trait StepCode<S>: StepDefinition + Sized {
    const RECONCILES: bool = false;
    fn attempt(cx: StepContext<S>, input: Self::Input) -> Attempt<Self>;
    fn reconcile(_cx: StepContext<S>, _input: Self::Input) -> Reconciling<Self> {
        Box::pin(async { Ok(None) })
    }
}

pub type Reconciling<D> = Boxed<Result<Option<<D as StepDefinition>::Output>, StepError>>;

/// The SDK also takes functions without context, and with several parameters.
pub fn reconciling<D, S, F, Fut>(look: F, cx: StepContext<S>, input: D::Input) -> Reconciling<D>
where
    D: StepDefinition,
    F: Fn(StepContext<S>, D::Input) -> Fut,
    Fut: Future<Output = Result<Option<D::Output>, StepError>> + Send + 'static,
{
    Box::pin(look(cx, input))
}

pub trait WorkflowDefinition: Sized + 'static {
    type Input: Value;
    type Output: Value;
    const NAME: &'static str;
    const WAS: &'static [&'static str];
    const VERSION: u32;
    fn run(ctx: Context, input: Self::Input) -> RunFuture<Self>;
    fn check(_input: &Self::Input) -> Result<(), Error> {
        Ok(())
    }
}

pub fn checked<E: fmt::Display>(result: Result<(), E>) -> Result<(), Error> {
    result.map_err(|error| Error(error.to_string()))
}

pub trait ResultParts {
    type Ok;
    type Err;
}
impl<T, E> ResultParts for Result<T, E> {
    type Ok = T;
    type Err = E;
}

#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub retry: Retry,
    pub timeout: Option<Duration>,
    pub limit: Option<u32>,
    pub is_blocking: bool,
}

impl Policy {
    pub const DEFAULT: Self = Self { retry: Retry::DEFAULT, timeout: None, limit: None, is_blocking: false };
}

#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    pub attempts: u32,
    pub initial: Duration,
    pub multiplier: f64,
    pub max: Duration,
}

impl Retry {
    pub const DEFAULT: Self = Self {
        attempts: 5,
        initial: Duration::from_millis(200),
        multiplier: 2.0,
        max: Duration::from_mins(1),
    };

    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    pub fn initial(self, initial: Duration) -> Self {
        Self { initial, ..self }
    }

    pub fn multiplier(self, multiplier: f64) -> Self {
        Self { multiplier, ..self }
    }

    pub fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }
}

impl<D: StepDefinition> Attempt<D> {
    pub fn blocking(work: impl FnOnce() -> Result<D::Output, StepError> + Send + 'static) -> Self {
        Self::new(async move { work() })
    }
}

#[derive(Debug)]
pub struct StepContext<S = ()>(pub S);

impl<S> StepContext<S> {
    pub fn stateless(self) -> StepContext {
        StepContext(())
    }
}

#[derive(Debug)]
pub struct Context;

/// Polls a future that needs nobody to wake it.
pub fn now<F: IntoFuture>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future.into_future());
    let mut cx = TaskContext::from_waker(Waker::noop());
    for _ in 0..100 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
    panic!("the future is not ready after 100 polls")
}
