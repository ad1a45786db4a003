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
}

pub trait StepCode<S>: StepDefinition + Sized {
    fn attempt(cx: StepContext<S>, input: Self::Input) -> Attempt<Self>;
}

pub trait WorkflowDefinition: Sized + 'static {
    type Input: Value;
    type Output: Value;
    const NAME: &'static str;
    const WAS: &'static [&'static str];
    const VERSION: u32;
    fn run(ctx: Context, input: Self::Input) -> RunFuture<Self>;
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
