//! Operations: the futures that a workflow awaits. Each has a named type that is `Unpin`, and builder methods.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use outlast_core::{Headers, IntoDuration, MessageId, ParentEnd, Payload, Retry, RunId, Timestamp};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::replay::{Arrival, OpHandle, RunState};

/// A step that a workflow requests. Completes with the step's output or failure.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct StepOperation<O> {
    handle: OpHandle,
    name: Arc<str>,
    output: PhantomData<fn() -> O>,
}

impl<O> StepOperation<O> {
    pub(crate) fn new(handle: OpHandle, name: Arc<str>) -> Self {
        Self { handle, name, output: PhantomData }
    }

    /// The maximum number of attempts, including the first.
    ///
    /// # Panics
    ///
    /// When `attempts` is 0, or the operation was already requested: set it before the next await.
    pub fn attempts(self, attempts: u32) -> Self {
        self.handle
            .state
            .edit_policy(self.handle.op, |policy| policy.retry = policy.retry.attempts(attempts));
        self
    }

    /// The retry policy, instead of that of the step.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn fetch(id: u64) -> Result<String, StepError> { Ok(id.to_string()) }
    /// #[workflow]
    /// async fn patient(ctx: Context, id: u64) -> Result<String, Error> {
    ///     ctx.step(fetch, &id).retry(Retry::linear().attempts(10).initial("1m").max("10m")).await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await.
    pub fn retry(self, retry: Retry) -> Self {
        self.handle.state.edit_policy(self.handle.op, |policy| policy.retry = retry);
        self
    }

    /// The maximum time between two heartbeats of an attempt
    /// ([`StepContext::heartbeat`](crate::StepContext::heartbeat)).
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A text that is not a
    /// duration is an error when the operation is awaited.
    pub fn heartbeat_timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, |state, op, timeout| {
            state.edit_policy(op, |policy| policy.heartbeat_timeout = Some(timeout));
        });
        self
    }

    /// The maximum duration of one attempt.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A text that is not a
    /// duration is an error when the operation is awaited.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, |state, op, timeout| {
            state.edit_policy(op, |policy| policy.timeout = Some(timeout));
        });
        self
    }

    /// Sends the step to this queue. A worker that serves the queue attempts it, instead of the worker that holds the
    /// run. It needs the code of the step, but not that of the workflow.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn resize(image: u64) -> Result<u64, StepError> { Ok(image) }
    /// #[workflow]
    /// async fn publish(ctx: Context, image: u64) -> Result<u64, Error> {
    ///     ctx.step(resize, image).queue("gpu").await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. An invalid queue name is an error when
    /// the operation is awaited.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.handle.state.set_queue(self.handle.op, queue.as_ref());
        self
    }

    /// The priority of the step in its queue, from 0 to 9: each level is worth ten seconds of waiting. The default is
    /// the priority of the run.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A higher value, or a
    /// priority for a step without a queue, is an error when the operation is awaited.
    pub fn priority(self, priority: u8) -> Self {
        self.handle.state.set_priority(self.handle.op, priority);
        self
    }
}

/// A step whose output is not decoded: a queued step returns it in its stored form.
pub(crate) struct StoredStep {
    handle: OpHandle,
}

impl StoredStep {
    pub(crate) fn new(handle: OpHandle) -> Self {
        Self { handle }
    }
}

impl Future for StoredStep {
    type Output = Result<Payload, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.handle.poll(cx)
    }
}

impl<O: DeserializeOwned> Future for StepOperation<O> {
    type Output = Result<O, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let payload = ready!(self.handle.poll(cx))?;
        self.handle.decode("step", &self.name, payload)
    }
}

/// A timer that a workflow waits for.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct TimerOperation {
    handle: OpHandle,
}

impl TimerOperation {
    pub(crate) fn new(handle: OpHandle) -> Self {
        Self { handle }
    }
}

impl Future for TimerOperation {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.handle.poll(cx).map_ok(|_| ())
    }
}

/// A payload that a workflow waits for.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct HookOperation<T> {
    handle: OpHandle,
    name: Arc<str>,
    payload: PhantomData<fn() -> T>,
}

impl<T> HookOperation<T> {
    pub(crate) fn new(handle: OpHandle, name: Arc<str>) -> Self {
        Self { handle, name, payload: PhantomData }
    }

    /// The maximum time to wait. After that the operation fails with a timeout.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A text that is not a
    /// duration is an error when the operation is awaited.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, RunState::set_hook_timeout);
        self
    }

    /// The payload together with the sender's headers, the id of the message, and the time at which it was accepted.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[workflow]
    /// async fn review(ctx: Context) -> Result<String, Error> {
    ///     let review = ctx.hook::<bool>("review").timeout("3d").received().await?;
    ///     let who = review.headers.get("user").map_or("somebody", String::as_str);
    ///     Ok(format!("{who} said {} at {}", review.payload, review.at))
    /// }
    /// ```
    pub fn received(self) -> ReceivedOperation<T> {
        ReceivedOperation { hook: self }
    }
}

impl<T: DeserializeOwned> Future for HookOperation<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let payload = ready!(self.handle.poll(cx))?;
        self.handle.decode("hook", &self.name, payload)
    }
}

/// A payload that a workflow waits for, together with its headers, message and time.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct ReceivedOperation<T> {
    hook: HookOperation<T>,
}

/// A payload that was sent to a hook, together with its headers, message and time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Received<T> {
    /// The payload.
    pub payload: T,
    /// The headers that the sender added; see [`SendCall::header`](crate::SendCall::header). Empty in runs with rules
    /// 1, which do not record them.
    pub headers: Headers,
    /// When the world accepted the message.
    pub at: Timestamp,
    /// The id of the message.
    pub message: MessageId,
}

impl<T: DeserializeOwned> Future for ReceivedOperation<T> {
    type Output = Result<Received<T>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let HookOperation { handle, name, .. } = &self.hook;
        let (stored, arrival) =
            ready!(handle.state.poll_hook(handle.op, cx.waker())).map_err(Error::of_failure)?;
        let payload = ready!(handle.decode("hook", name, stored))?;
        let Arrival { headers, at, message, .. } = *arrival;
        Poll::Ready(Ok(Received { payload, headers, at, message }))
    }
}

/// A child that a workflow requests. Completes with the child's output or failure.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct ChildOperation<O> {
    handle: OpHandle,
    name: Arc<str>,
    run: RunId,
    output: PhantomData<fn() -> O>,
}

impl<O> ChildOperation<O> {
    pub(crate) fn new(handle: OpHandle, name: Arc<str>) -> Self {
        let run = handle.state.child_run(handle.op);
        Self { handle, name, run, output: PhantomData }
    }

    /// The id of the child, which is known before it is started.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// A start key for the child. When the key names another run, the operation fails with an error that [is a
    /// conflict](Error::is_conflict), unless the child is [abandoned](Self::abandon): then it is the run that the key
    /// names.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.handle.state.set_child_key(self.handle.op, key.into());
        self
    }

    /// The queue of the child, instead of the one of its workflow.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. An invalid queue name is an error when
    /// the operation is awaited.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.handle.state.set_queue(self.handle.op, queue.as_ref());
        self
    }

    /// The priority of the child, from 0 to 9: each level is worth ten seconds of waiting.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A higher value is an error
    /// when the operation is awaited.
    pub fn priority(self, priority: u8) -> Self {
        self.handle.state.set_priority(self.handle.op, priority);
        self
    }

    /// The maximum time to wait for the end of the child. After that the operation fails with a timeout, and the child
    /// is cancelled.
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await. A text that is not a
    /// duration is an error when the operation is awaited.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, RunState::set_child_timeout);
        self
    }

    /// What happens to the child if this run ends before it. The default is to cancel it.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn report(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// #[workflow]
    /// async fn close_the_books(ctx: Context) -> Result<(), Error> {
    ///     let report = ctx.child(report, ()).on_parent_end(ParentEnd::Wait);
    ///     ctx.sleep("1h").await?;
    ///     drop(report); // the outcome is ignored, but this run does not end before the report
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// When the operation was already requested: set it before the next await.
    pub fn on_parent_end(self, choice: ParentEnd) -> Self {
        self.handle.state.set_on_parent_end(self.handle.op, choice);
        self
    }

    /// Starts the child without waiting for its end (fire and forget). Completes with its id.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn welcome(ctx: Context, who: String) -> Result<(), Error> { Ok(()) }
    /// #[workflow]
    /// async fn sign_up(ctx: Context, who: String) -> Result<(), Error> {
    ///     let run = ctx.child(welcome, &who).key(format!("welcome-{who}")).abandon().await?;
    ///     ctx.tag("welcome", &run.to_string())
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// When the operation was already requested: call it before the next await.
    pub fn abandon(self) -> AbandonedChild {
        self.handle.state.detach_child(self.handle.op);
        AbandonedChild { handle: self.handle }
    }
}

impl<O: DeserializeOwned> Future for ChildOperation<O> {
    type Output = Result<O, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let payload = ready!(self.handle.poll(cx))?;
        self.handle.decode("child", &self.name, payload)
    }
}

/// A child whose end is not awaited. Completes with its id as soon as it is started.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct AbandonedChild {
    handle: OpHandle,
}

impl Future for AbandonedChild {
    type Output = Result<RunId, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        // The engine wrote this payload without a codec.
        let run = ready!(self.handle.poll(cx))?;
        Poll::Ready(run.decode().map_err(Error::from))
    }
}
