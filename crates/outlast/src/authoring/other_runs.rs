//! Workflow to workflow: sending to other runs, asking, cancelling and awaiting them.
//!
//! Each is a built-in step, which every worker has, like `ctx.fetch`. The key of the step makes it idempotent: however
//! often it is attempted, the other run receives one message, and an ask that is attempted again gets the same reply.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use outlast_core::{FailureKind, IntoDuration, Retry, RunId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::authoring::context::Context;
use crate::authoring::hook::{AskFor, HookFor};
use crate::authoring::operation::StepOperation;
use crate::authoring::registry::Registry;
use crate::authoring::step::{Step, StepContext};
use crate::error::{Error, ErrorKind, StepError};

/// The handle of the built-in step behind [`Context::send`], for mocks and rehearsals.
pub const SEND: Step<RunMessage, ()> = Step::new("outlast:send").retry(Retry::api());

/// The handle of the built-in step behind [`Context::cancel`], for mocks and rehearsals.
pub const CANCEL: Step<RunCancel, ()> = Step::new("outlast:cancel").retry(Retry::api());

const ASK: &str = "outlast:ask";
const JOIN: &str = "outlast:join";

/// The names of these steps.
pub(crate) const OTHER_RUN_STEPS: [&str; 4] = ["outlast:send", "outlast:cancel", ASK, JOIN];

/// A payload for another run: the input of the built-in steps that send one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunMessage {
    /// The other run.
    pub run: RunId,
    /// The name of its hook.
    pub hook: String,
    /// The payload, as JSON.
    pub payload: Box<RawValue>,
    /// How long an ask waits for the reply, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_us: Option<u64>,
}

/// A cancel of another run: the input of a built-in step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunCancel {
    /// The other run.
    pub run: RunId,
    /// Why it is cancelled.
    pub reason: String,
}

impl Context {
    /// Sends a payload to a hook of another run. It is delivered once, however often the built-in step behind it is
    /// attempted.
    ///
    /// ```
    /// use outlast::prelude::*;
    /// # use outlast::RunId;
    ///
    /// const READY: Hook<String> = Hook::new("ready");
    ///
    /// #[workflow]
    /// async fn bake(ctx: Context, shop: RunId) -> Result<(), Error> {
    ///     ctx.send(shop, READY, "bread").await
    /// }
    /// # let mut run = outlast_testkit::Rehearsal::of(bake, outlast::RunId::from_bits(1));
    /// # run.completes(outlast::SEND, ());
    /// # run.output().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// When awaited: as [`Client::send`](crate::Client::send), for example if the other run has ended.
    #[track_caller]
    pub fn send<T>(&self, run: RunId, hook: impl HookFor<T>, payload: &T) -> StepOperation<(), RunMessage>
    where
        T: Serialize + ?Sized,
    {
        self.step(SEND, run_message(run, hook.hook_name(), payload))
    }

    /// Sends a payload to a hook of another run, and waits for its reply; see [`Client::ask`](crate::Client::ask).
    ///
    /// # Errors
    ///
    /// When awaited: as [`Client::ask`](crate::Client::ask). The error of a timeout has the [code](Error::code) `timeout`.
    pub fn ask<T, H>(&self, run: RunId, hook: H, payload: &T) -> AskOperation<H::Reply>
    where
        T: Serialize + ?Sized,
        H: AskFor<T>,
    {
        let message = run_message(run, hook.hook_name(), payload);
        AskOperation { ctx: self.clone(), message, problem: None, step: None, reply: PhantomData }
    }

    /// Asks another run to stop; see [`Client::cancel`](crate::Client::cancel). A run that has ended is no error.
    ///
    /// # Errors
    ///
    /// When awaited: as [`Client::cancel`](crate::Client::cancel).
    #[track_caller]
    pub fn cancel(&self, run: RunId, reason: impl Into<String>) -> StepOperation<(), RunCancel> {
        self.step(CANCEL, RunCancel { run, reason: reason.into() })
    }

    /// Waits for the end of another run, and returns its output or failure.
    ///
    /// For a run that this one starts, use [`child`](Self::child), which is cheaper: while it waits for another run, this
    /// run stays in the memory of its worker.
    ///
    /// # Errors
    ///
    /// When awaited: the failure of the other run, or `NotFound` if there is no such run.
    #[track_caller]
    pub fn join_run<O: DeserializeOwned + 'static>(&self, run: RunId) -> StepOperation<O, RunId> {
        self.step(Step::<RunId, O>::new(JOIN).retry(Retry::exponential().attempts(u32::MAX)), run)
    }
}

fn run_message<T: Serialize + ?Sized>(run: RunId, hook: &str, payload: &T) -> RunMessage {
    let payload = serde_json::value::to_raw_value(payload).unwrap_or_else(|error| {
        panic!("the payload for hook `{hook}` of {run} cannot be stored as JSON: {error}");
    });
    RunMessage { run, hook: hook.into(), payload, timeout_us: None }
}

/// Asks another run; created by [`Context::ask`].
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
pub struct AskOperation<R> {
    ctx: Context,
    message: RunMessage,
    problem: Option<Error>,
    /// Set when it is polled first.
    step: Option<StepOperation<R, RunMessage>>,
    reply: PhantomData<fn() -> R>,
}

impl<R> AskOperation<R> {
    /// Sets how long to wait for the reply, from the first attempt on. An invalid duration is an error when the operation
    /// is awaited.
    pub fn timeout(mut self, timeout: impl IntoDuration) -> Self {
        match timeout.into_duration() {
            Ok(timeout) => {
                self.message.timeout_us = Some(u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX));
            }
            Err(error) => self.problem = Some(Error::invalid(error.to_string())),
        }
        self
    }
}

impl<R: DeserializeOwned + 'static> Future for AskOperation<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Some(problem) = self.problem.take() {
            return Poll::Ready(Err(problem));
        }
        if self.step.is_none() {
            let step = Step::<RunMessage, R>::new(ASK).retry(Retry::api());
            self.step = Some(self.ctx.step(step, self.message.clone()));
        }
        match &mut self.step {
            Some(step) => Pin::new(step).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<R> std::fmt::Debug for AskOperation<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AskOperation({} of {})", self.message.hook, self.message.run)
    }
}

impl<S: Send + Sync + 'static> Registry<S> {
    /// Adds the steps that concern other runs.
    pub(crate) fn add_other_run_steps(&mut self) {
        self.add_step_of(SEND, |cx: StepContext<S>, message: RunMessage| async move {
            let call = cx.client().send(message.run, message.hook.as_str(), &message.payload).key(cx.key());
            call.await.map_err(step_error)
        });
        self.add_step_of(CANCEL, |cx: StepContext<S>, cancel: RunCancel| async move {
            cx.client().cancel(cancel.run, &cancel.reason).await.map(drop).map_err(step_error)
        });
        let ask = Step::<RunMessage, Box<RawValue>>::new(ASK);
        self.add_step_of(ask, |cx: StepContext<S>, message: RunMessage| async move {
            let RunMessage { run, hook, payload, timeout_us } = message;
            let mut call = cx.client().ask_as::<Box<RawValue>>(run, hook, &payload).key(cx.key());
            if let Some(timeout_us) = timeout_us {
                call = call.timeout(Duration::from_micros(timeout_us));
            }
            unless_stopped(&cx, call).await
        });
        let join = Step::<RunId, Box<RawValue>>::new(JOIN);
        self.add_step_of(join, |cx: StepContext<S>, run: RunId| async move {
            let client = cx.client();
            unless_stopped(&cx, client.handle::<Box<RawValue>>(run).output()).await
        });
    }
}

/// Waits for another run, unless the step is asked to stop: that may take as long as the other run.
async fn unless_stopped<S: Send + Sync + 'static, T>(
    cx: &StepContext<S>,
    waiting: impl IntoFuture<Output = Result<T, Error>>,
) -> Result<T, StepError> {
    tokio::select! {
        biased;
        ended = waiting.into_future() => ended.map_err(step_error),
        () = cx.cancelled() => Err(StepError::fatal("what the other run does is no longer needed")),
    }
}

/// The error of an attempt. Only a world that does not respond is tried again.
fn step_error(error: Error) -> StepError {
    let kind = error.kind();
    let mut failure = error.into_failure();
    failure.kind = match kind {
        ErrorKind::Unavailable => return StepError::of_failure(failure),
        ErrorKind::Conflict => FailureKind::Conflict,
        ErrorKind::Limit => FailureKind::Limit,
        ErrorKind::Invalid => FailureKind::Invalid,
        ErrorKind::Cancelled => FailureKind::Cancelled,
        _ => FailureKind::Fatal,
    };
    if kind == ErrorKind::Timeout {
        failure = failure.with_code("timeout");
    }
    StepError::of_failure(failure)
}
