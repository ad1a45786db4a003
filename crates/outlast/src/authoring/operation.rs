//! Operations: the futures that a workflow awaits. Each is a named `Unpin` type with builder methods.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use outlast_core::queue::check_name;
use outlast_core::{
    Failure, FailureKind, Headers, IntoDuration, MessageId, ParentEnd, Payload, Retry, RunId, Timestamp,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::authoring::compensation::Undo;
use crate::authoring::step::StepHandle;
use crate::error::Error;
use crate::replay::{Arrival, ChildText, NewCompensation, OpHandle, ReplySlot, RunState, Saga};

/// A step that a workflow requests. Completes with the step's output or failure.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct StepOperation<O, I> {
    handle: OpHandle,
    name: Arc<str>,
    /// The saga in which its compensation is registered.
    saga: Saga,
    types: PhantomData<fn(I) -> O>,
}

impl<O, I> StepOperation<O, I> {
    pub(crate) fn new(handle: OpHandle, name: Arc<str>, saga: Saga) -> Self {
        Self { handle, name, saga, types: PhantomData }
    }

    /// Registers a step that undoes this one, if the run does not complete. It gets an [`Undo`] with the input and the
    /// output of this step.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// #[step]
    /// async fn charge(cents: u64) -> Result<String, StepError> {
    ///     Ok(format!("payment of {cents}"))
    /// }
    ///
    /// #[step]
    /// async fn refund(undo: Undo<u64, String>) -> Result<(), StepError> {
    ///     // … `undo.output` is the payment, or `None` if it is not known whether there is one
    ///     Ok(())
    /// }
    ///
    /// # #[step] async fn ship(payment: String) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<(), Error> {
    ///     let payment = ctx.step(charge, cents).undo(refund).await?;
    ///     ctx.step(ship, &payment).await // if this fails, the payment is refunded
    /// }
    /// ```
    ///
    /// When the run is about to fail or to be cancelled, its compensations run first:
    ///
    /// * That is recorded, and from then on no code of the workflow runs. A later cancel and the deadline change
    ///   nothing, and neither does a change of the workflow's code. The worker needs only the code of the steps.
    /// * The first one begins when all attempts, queued steps and children of the run are over. They are asked to stop.
    /// * They run one after the other, the last registered first, as ordinary steps. One with the default
    ///   [retry policy](Retry) is retried for 24 hours.
    /// * One that fails for good does not stop the others. The error of the run
    ///   [lists it](Error::failed_compensations).
    /// * A step that was never attempted is not undone. One that may have been attempted is.
    ///
    /// [`keep`](crate::Context::keep) settles what was registered so far, and a [`saga`](crate::Context::saga) compensates for a part
    /// of the workflow.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn undo<H, M>(self, step: H) -> Self
    where
        H: StepHandle<M, Input = Undo<I, O>>,
    {
        let new = NewCompensation { step: step.name().into(), policy: step.policy() };
        self.handle.state.register_undo(self.handle.op, new, self.saga);
        self
    }

    /// Sets the total number of attempts, including the first.
    ///
    /// # Panics
    ///
    /// If `attempts` is 0, or if the operation was already requested: call it before the next await.
    pub fn attempts(self, attempts: u32) -> Self {
        self.handle
            .state
            .edit_policy(self.handle.op, |policy| policy.retry = policy.retry.attempts(attempts));
        self
    }

    /// Sets the retry policy.
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
    /// If the operation was already requested: call it before the next await.
    pub fn retry(self, retry: Retry) -> Self {
        self.handle.state.edit_policy(self.handle.op, |policy| policy.retry = retry);
        self
    }

    /// Sets how long an attempt may go without a [heartbeat](crate::StepContext::heartbeat). An invalid duration is an
    /// error when the operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn heartbeat_timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, |state, op, timeout| {
            state.edit_policy(op, |policy| policy.heartbeat_timeout = Some(timeout));
        });
        self
    }

    /// Sets how long one attempt may take. An invalid duration is an error when the operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, |state, op, timeout| {
            state.edit_policy(op, |policy| policy.timeout = Some(timeout));
        });
        self
    }

    /// Sends the step to a queue: a worker that serves the queue attempts it, instead of the worker that holds the run.
    /// That worker needs the step's code, but not the workflow's. An invalid name is an error when the operation is
    /// awaited.
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
    /// If the operation was already requested: call it before the next await.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.handle.state.set_queue(self.handle.op, queue.as_ref());
        self
    }

    /// Cancels the step, and lets the workflow await how it ends. Use it for the loser of a race whose effect matters.
    ///
    /// A step that is being attempted is [asked to stop](crate::StepContext::is_cancelled), and the operation completes
    /// with the real outcome of that attempt. It is not attempted again. A step that nobody attempts fails with an
    /// error that [is cancelled](Error::is_cancelled), or that says that it
    /// [may have been attempted](Error::is_maybe_attempted) by a worker that was lost. A step that has ended keeps its
    /// outcome.
    ///
    /// Dropping the operation also asks the attempt to stop, but discards its outcome.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[step] async fn charge(cents: u64) -> Result<String, StepError> { Ok(format!("paid {cents}")) }
    /// # #[step] async fn refund(payment: String) -> Result<(), StepError> { Ok(()) }
    /// #[workflow]
    /// async fn checkout(ctx: Context, cents: u64) -> Result<bool, Error> {
    ///     let mut payment = ctx.step(charge, cents);
    ///     select! {
    ///         paid = &mut payment => return paid.map(|_| true),
    ///         withdrawn = ctx.hook::<()>("withdrawn") => withdrawn?,
    ///     }
    ///     payment.cancel();
    ///     if let Ok(payment) = payment.await {
    ///         ctx.step(refund, &payment).await?; // it was charged nevertheless
    ///     }
    ///     Ok(false)
    /// }
    /// ```
    ///
    /// The cancel is recorded. It has no effect on the run, nor on other operations.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Sets the priority of a queued step, from 0 to 9. Each level is worth ten seconds of waiting. The default is the
    /// priority of the run. A higher number, or a priority for a step without a queue, is an error when the operation
    /// is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
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

impl<O: DeserializeOwned, I> Future for StepOperation<O, I> {
    type Output = Result<O, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let payload = ready!(self.handle.poll(cx))?;
        self.handle.decode("step", &self.name, payload)
    }
}

/// A timer; created by [`Context::sleep`](crate::Context::sleep) and
/// [`Context::sleep_until`](crate::Context::sleep_until).
///
/// It completes when the time is reached, or when [`Client::wake`](crate::Client::wake) ends it early.
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct TimerOperation {
    handle: OpHandle,
}

impl TimerOperation {
    pub(crate) fn new(handle: OpHandle) -> Self {
        Self { handle }
    }

    /// Cancels the timer: it ends at once, with an error that [is cancelled](Error::is_cancelled). A timer that has ended keeps its outcome.
    pub fn cancel(&self) {
        self.handle.cancel();
    }
}

impl Future for TimerOperation {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.handle.poll(cx).map_ok(|_| ())
    }
}

/// A wait for a payload; created by [`Context::hook`](crate::Context::hook).
///
/// It completes with the next payload that is sent to the run under the hook's name.
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

    /// Sets how long to wait. After that the operation fails with a timeout. An invalid duration is an error when the
    /// operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, RunState::set_hook_timeout);
        self
    }

    /// Cancels the wait: it ends at once, with an error that [is cancelled](Error::is_cancelled). A payload that arrives
    /// later is kept for other hooks of the name. A hook that has ended keeps its outcome.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Makes the operation return the payload together with the sender's headers, the time at which the world accepted
    /// it, and the message id.
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
        let handle = &self.handle;
        let (payload, arrival) =
            ready!(handle.state.poll_hook(handle.op, cx.waker())).map_err(Error::of_failure)?;
        if arrival.to.wants_reply {
            // Without `received()` the code cannot reply.
            handle.state.drop_reply(arrival.message);
        }
        handle.decode("hook", &self.name, payload)
    }
}

/// A wait for a payload with its headers, time and message id; created by [`HookOperation::received`].
#[must_use = "an operation that is dropped is not requested; await it, or keep it"]
#[derive(Debug)]
pub struct ReceivedOperation<T> {
    hook: HookOperation<T>,
}

impl<T> ReceivedOperation<T> {
    /// Sets how long to wait; see [`HookOperation::timeout`].
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        Self { hook: self.hook.timeout(timeout) }
    }

    /// Cancels the wait; see [`HookOperation::cancel`].
    pub fn cancel(&self) {
        self.hook.cancel();
    }
}

/// A payload together with its headers, time and message id.
///
/// If the sender waits for a reply and every clone is dropped without one, the sender learns that nobody answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received<T> {
    /// The payload.
    pub payload: T,
    /// The headers of the send; see [`SendCall::header`](crate::SendCall::header). Empty in runs with rules 1,
    /// which do not record them.
    pub headers: Headers,
    /// When the world accepted the message.
    pub at: Timestamp,
    /// The id of the message.
    pub message: MessageId,
    /// Where the reply goes, if the sender waits for one.
    reply: Option<Arc<ReplySlot>>,
}

impl<T> Received<T> {
    /// Returns whether the sender waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.reply.is_some()
    }

    /// Replies to the sender. The reply is stored with the next commit of the run, and for at least 7 days. If the
    /// sender does not wait for a reply, nothing happens.
    ///
    /// The sender decodes the reply as the type that its [`Hook<T, R>`](crate::Hook) names.
    /// [`Hook::reply`](crate::Hook::reply) lets the compiler check the type here.
    ///
    /// ```
    /// use outlast::prelude::*;
    ///
    /// const QUOTE: Hook<u32, f64> = Hook::new("quote");
    ///
    /// #[workflow]
    /// async fn shop(ctx: Context) -> Result<(), Error> {
    ///     let message = ctx.hook(QUOTE).received().await?;
    ///     message.reply(&(f64::from(message.payload) * 9.99))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(shop).start().await?;
    /// # let client = Client::new(world);
    /// let run = client.start(shop, ()).await?;
    /// let price = client.ask(run.id(), QUOTE, &2).timeout("10s").await?;
    /// assert_eq!(price, 19.98);
    /// # worker.stop().await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `Invalid` if the value cannot be stored, or the message was already replied to; `Limit` if it is too large.
    pub fn reply<R: Serialize + ?Sized>(&self, reply: &R) -> Result<(), Error> {
        self.reply.as_ref().map_or(Ok(()), |slot| slot.reply(reply))
    }
}

impl<T: PartialEq> PartialEq for Received<T> {
    fn eq(&self, other: &Self) -> bool {
        let Self { payload, headers, at, message, reply: _ } = self;
        (payload, headers, at, message) == (&other.payload, &other.headers, &other.at, &other.message)
    }
}

impl<T: DeserializeOwned> Future for ReceivedOperation<T> {
    type Output = Result<Received<T>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let HookOperation { handle, name, .. } = &self.hook;
        let (stored, arrival) =
            ready!(handle.state.poll_hook(handle.op, cx.waker())).map_err(Error::of_failure)?;
        let payload = ready!(handle.decode("hook", name, stored))?;
        let Arrival { headers, at, message, to, .. } = *arrival;
        let reply = to.wants_reply.then(|| Arc::new(ReplySlot::new(handle.state.clone(), message)));
        Poll::Ready(Ok(Received { payload, headers, at, message, reply }))
    }
}

/// A requested child run; created by [`Context::child`](crate::Context::child).
///
/// It completes with the child's output or failure.
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

    /// Returns the child's id. It is known before the child is started.
    pub fn run(&self) -> RunId {
        self.run
    }

    /// Sets the key of the child. If the key belongs to another run, the operation fails with an error that [is a
    /// conflict](Error::is_conflict), unless the child is [abandoned](Self::abandon): then the operation completes with
    /// the id of that run.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        match check_name("key", &key) {
            Ok(()) => self.handle.state.set_child_key(self.handle.op, key),
            Err(problem) => {
                let failure = Failure::new(FailureKind::Invalid, problem);
                self.handle.state.fail_before_request(self.handle.op, failure);
            }
        }
        self
    }

    /// Sets the queue of the child, instead of its workflow's own. An invalid name is an error when the operation is
    /// awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.handle.state.set_queue(self.handle.op, queue.as_ref());
        self
    }

    /// Sets the priority of the child, from 0 to 9. Each level is worth ten seconds of waiting. A higher number is an
    /// error when the operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn priority(self, priority: u8) -> Self {
        self.handle.state.set_priority(self.handle.op, priority);
        self
    }

    /// Sets how long to wait for the end of the child. After that the operation fails with a timeout, and the child is
    /// cancelled. An invalid duration is an error when the operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn timeout(self, timeout: impl IntoDuration) -> Self {
        self.handle.with_duration(timeout, RunState::set_child_timeout);
        self
    }

    /// Adds a tag to the child, by which [lists](crate::ListCall::tag) can find it. A child inherits no tags. A reserved
    /// name, or a text past its limit, is an error when the operation is awaited.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn ship(ctx: Context, parcel: u64) -> Result<(), Error> { Ok(()) }
    /// #[workflow]
    /// async fn order(ctx: Context, parcel: u64) -> Result<(), Error> {
    ///     ctx.child(ship, parcel).tag("parcel", parcel.to_string()).header("carrier", "bike").deadline("2d").await
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn tag(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.handle.state.add_to_child(self.handle.op, ChildText::Tag, name.into(), value.into());
        self
    }

    /// Adds a header to the child, beside those that it inherits from this run. A reserved name is an error when the
    /// operation is awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.handle.state.add_to_child(self.handle.op, ChildText::Header, name.into(), value.into());
        self
    }

    /// Sets a deadline of the child, counted from now: the child is cancelled then, as by
    /// [`StartCall::deadline`](crate::StartCall::deadline). An invalid duration is an error when the operation is
    /// awaited.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn deadline(self, time: impl IntoDuration) -> Self {
        self.handle.with_duration(time, RunState::set_child_deadline);
        self
    }

    /// Cancels the child, as [`Client::cancel`](crate::Client::cancel) does, and lets the workflow await how it ends: it
    /// can clean up, and may even complete. A child that has ended keeps its outcome.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn search(ctx: Context, shop: String) -> Result<u64, Error> { Ok(1) }
    /// #[workflow]
    /// async fn find(ctx: Context) -> Result<Option<u64>, Error> {
    ///     let mut search = ctx.child(search, "far away");
    ///     select! {
    ///         found = &mut search => return found.map(Some),
    ///         late = ctx.sleep("1h") => late?,
    ///     }
    ///     search.cancel();
    ///     match search.await {
    ///         Err(error) if error.is_cancelled() => Ok(None),
    ///         outcome => outcome.map(Some),
    ///     }
    /// }
    /// ```
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// Cancels the child when the operation is dropped before the child has ended, for example as the loser of a race.
    /// By default such a child continues, and only its outcome is discarded.
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn cancel_on_drop(self) -> Self {
        self.handle.state.set_cancelled_on_drop(self.handle.op);
        self
    }

    /// Sets what happens to the child if this run ends before it. The default is [`ParentEnd::Cancel`].
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn report(ctx: Context) -> Result<(), Error> { Ok(()) }
    /// #[workflow]
    /// async fn close_the_books(ctx: Context) -> Result<(), Error> {
    ///     let report = ctx.child(report, ()).on_parent_end(ParentEnd::Wait);
    ///     ctx.sleep("1h").await?;
    ///     drop(report); // discards the outcome, but this run does not end before the report
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// If the operation was already requested: call it before the next await.
    pub fn on_parent_end(self, choice: ParentEnd) -> Self {
        self.handle.state.set_on_parent_end(self.handle.op, choice);
        self
    }

    /// Starts the child without waiting for its end. The operation completes with the child's id when the child is
    /// started.
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
    /// If the operation was already requested: call it before the next await.
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

/// A child that is started without waiting for its end; created by [`ChildOperation::abandon`].
///
/// It completes with the child's id when the child is started.
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
