//! Attempts from the view of the step's code: the future of an attempt, and the information that it can read.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};

use outlast_core::{
    AttemptId, Clock, Codec, Headers, OpNumber, Payload, PayloadError, PlainJson, RunId, SessionId, Timestamp,
};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::JoinHandle;

use crate::authoring::step::StepDefinition;
use crate::clock::SystemClock;
use crate::error::StepError;
use crate::replay::polling;
use crate::worker::heartbeats::Heartbeats;

/// One attempt at a step: the future that a step's function returns.
///
/// Awaiting it runs the step's code, so a step can be called as a plain function in a unit test. The code of a blocking
/// step runs on the blocking pool of the current tokio runtime.
///
/// A workflow must not await it: write `ctx.step(mail, n)`, not `mail(n)`. If a workflow awaits it, the attempt does
/// nothing, and the run gets stuck with a message that names this remedy.
#[must_use = "an attempt does nothing unless it is awaited"]
pub struct Attempt<D: StepDefinition> {
    work: Work<Result<D::Output, StepError>>,
}

enum Work<R> {
    Async(Pin<Box<dyn Future<Output = R> + Send>>),
    Blocking(Box<dyn FnOnce() -> R + Send>),
    Spawned(JoinHandle<R>),
    Done,
}

impl<D: StepDefinition> Attempt<D> {
    /// An attempt that runs `future`.
    pub fn new(future: impl Future<Output = Result<D::Output, StepError>> + Send + 'static) -> Self {
        Self { work: Work::Async(Box::pin(future)) }
    }

    /// An attempt that runs `work`, which blocks its thread.
    pub fn blocking(work: impl FnOnce() -> Result<D::Output, StepError> + Send + 'static) -> Self {
        Self { work: Work::Blocking(Box::new(work)) }
    }

    /// The same attempt. If it blocks a thread, the thread holds the permits of the attempt until it returns: it cannot
    /// be stopped, and may run longer than the attempt.
    pub(crate) fn holding_permits(self, info: &AttemptInfo) -> Self {
        match self.work {
            Work::Blocking(work) => {
                let permits = std::mem::take(&mut *info.permits.lock());
                Self::blocking(move || {
                    let _until_the_end = permits;
                    work()
                })
            }
            work => Self { work },
        }
    }
}

impl<D: StepDefinition> Future for Attempt<D> {
    type Output = Result<D::Output, StepError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if polling::is_direct_call(D::NAME) {
            return Poll::Pending;
        }
        if let Work::Blocking(_) = &self.work
            && let Work::Blocking(work) = std::mem::replace(&mut self.work, Work::Done)
        {
            // Log lines of the other thread belong to the span of the attempt.
            let span = tracing::Span::current();
            self.work = Work::Spawned(tokio::task::spawn_blocking(move || span.in_scope(work)));
        }
        match &mut self.work {
            Work::Async(future) => future.as_mut().poll(cx),
            Work::Spawned(thread) => Pin::new(thread).poll(cx).map(|ended| match ended {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(StepError::msg("the runtime stopped before the attempt began")),
                },
            }),
            Work::Blocking(_) | Work::Done => Poll::Pending,
        }
    }
}

impl<D: StepDefinition> fmt::Debug for Attempt<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({})", D::NAME)
    }
}

/// Why an attempt is asked to stop; see [`StepContext::stop_reason`](crate::StepContext::stop_reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The run was cancelled, or its deadline has passed. How the attempt ends is still the step's outcome.
    Cancelled,
    /// The workflow no longer waits for the step: it dropped the operation, for example in a race, or the run has
    /// ended.
    Dropped,
    /// The worker releases the run, because it stops or has lost its session. Another attempt will be made.
    Released,
    /// The attempt has failed, for example by its timeout. Tasks that it spawned can see this.
    Failed,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cancelled => "the run was cancelled",
            Self::Dropped => "the workflow no longer waits for the step",
            Self::Released => "the worker releases the run",
            Self::Failed => "the attempt has failed",
        })
    }
}

/// The information of an attempt: its identity, its environment, and the signals to and from it.
#[derive(Debug)]
pub(crate) struct AttemptInfo {
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
    pub(crate) id: AttemptId,
    /// The name of the step; empty in a unit test.
    pub(crate) step: Arc<str>,
    /// The headers of the run.
    pub(crate) headers: Arc<Headers>,
    pub(crate) attempt: u32,
    /// Whether it is certain that no attempt was made before.
    pub(crate) is_first: bool,
    /// Whether a lost worker may have made this attempt.
    pub(crate) is_doubtful: bool,
    /// Whether no other attempt is made after this one.
    pub(crate) is_at_most_once: bool,
    /// The permits of the limits that apply to it.
    pub(crate) permits: Mutex<Vec<OwnedSemaphorePermit>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) codec: Arc<dyn Codec>,
    /// The recorded heartbeat details of an earlier attempt.
    pub(crate) before: Option<Payload>,
    /// Where its heartbeat details are sent.
    pub(crate) sending: Option<HeartbeatTarget>,
    pub(crate) signals: Signals,
}

/// The attempt has not begun.
const WAITING: u8 = 0;
/// The step's code is running or has run.
const BEGUN: u8 = 1;
/// The step ended before its code ran; the code never runs.
const WITHHELD: u8 = 2;

/// The signals to an attempt while it runs, and its last heartbeat.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// [`WAITING`], [`BEGUN`] or [`WITHHELD`].
    stage: AtomicU8,
    stop_reason: OnceLock<StopReason>,
    /// Whether the warning about omitted heartbeat details was logged.
    has_warned: AtomicBool,
    stopped: Notify,
    heartbeat: Mutex<Option<Heartbeat>>,
    /// Whether the workflow no longer waits for the step: its heartbeat details are not stored.
    is_dropped: AtomicBool,
}

impl Signals {
    /// Moves the attempt from [`WAITING`] to this stage. Returns false when it was not waiting.
    fn leave_waiting(&self, stage: u8) -> bool {
        self.stage.compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Where heartbeat details wait for the next beat of the worker, and the run and operation that they belong to.
#[derive(Debug)]
pub(crate) struct HeartbeatTarget {
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
}

/// The last heartbeat of an attempt.
#[derive(Debug)]
struct Heartbeat {
    at: Timestamp,
    details: Option<Payload>,
}

impl AttemptInfo {
    /// A first attempt for a unit test of a step.
    pub(crate) fn for_test() -> Self {
        Self {
            run: RunId::from_bits(0),
            op: OpNumber(0),
            id: AttemptId::new(SessionId::from_bits(0), 0),
            step: "".into(),
            headers: Arc::default(),
            attempt: 1,
            is_first: true,
            is_doubtful: false,
            is_at_most_once: false,
            permits: Mutex::default(),
            clock: Arc::new(SystemClock),
            codec: Arc::new(PlainJson),
            before: None,
            sending: None,
            signals: Signals::default(),
        }
    }

    /// Asks the attempt to stop. Only the first reason is kept.
    pub(crate) fn stop(&self, reason: StopReason) {
        // Store the reason before waking waiters, so that a woken waiter can read it.
        let _ = self.signals.stop_reason.set(reason);
        self.signals.stopped.notify_waiters();
    }

    /// Asks the attempt to stop because the workflow no longer waits for the step, and discards later heartbeat
    /// details.
    pub(crate) fn withdraw(&self) {
        self.signals.is_dropped.store(true, Ordering::Release);
        self.stop(StopReason::Dropped);
    }

    /// Begins the attempt. Returns false when it was withheld.
    pub(crate) fn begin(&self) -> bool {
        self.signals.leave_waiting(BEGUN)
    }

    /// Prevents the attempt from beginning. Returns false when it has begun.
    pub(crate) fn withhold(&self) -> bool {
        let is_withheld = self.signals.leave_waiting(WITHHELD);
        if is_withheld {
            self.stop(StopReason::Cancelled);
        }
        is_withheld
    }

    /// Why the attempt was asked to stop, if it was.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        self.signals.stop_reason.get().copied()
    }

    /// Completes when the attempt is asked to stop.
    pub(crate) async fn stopped(&self) {
        // Register before reading the reason, so that no notification is missed.
        let stopped = self.signals.stopped.notified();
        if self.stop_reason().is_none() {
            stopped.await;
        }
    }

    /// Records a heartbeat, and passes its details to the worker.
    pub(crate) fn beat(&self, details: impl Serialize) {
        let details = match Payload::json(&details) {
            Ok(details) => Some(details),
            Err(error) => {
                self.warn_of_omitted_details(&error);
                None
            }
        };
        let at = self.clock.now();
        if let (Some(HeartbeatTarget { heartbeats, run, op }), Some(details)) = (&self.sending, &details)
            && !self.signals.is_dropped.load(Ordering::Acquire)
        {
            heartbeats.put(*run, *op, self.attempt, details.clone());
        }
        let mut heartbeat = self.signals.heartbeat.lock();
        // A heartbeat with invalid details still counts; the previous details are kept.
        let details = details.or_else(|| heartbeat.take().and_then(|before| before.details));
        *heartbeat = Some(Heartbeat { at, details });
    }

    /// Logs once per attempt that heartbeat details are omitted.
    fn warn_of_omitted_details(&self, error: &PayloadError) {
        if !self.signals.has_warned.swap(true, Ordering::Relaxed) {
            let Self { run, step, attempt, .. } = self;
            tracing::warn!(%run, %step, attempt, "the details of a heartbeat are omitted: {error}");
        }
    }

    /// The time of the last heartbeat.
    pub(crate) fn beaten_at(&self) -> Option<Timestamp> {
        self.signals.heartbeat.lock().as_ref().map(|heartbeat| heartbeat.at)
    }

    /// Takes the details of the last heartbeat, encoded for the history.
    pub(crate) fn take_details(&self) -> Option<Payload> {
        let details =
            self.signals.heartbeat.lock().as_mut().and_then(|heartbeat| heartbeat.details.take())?;
        self.codec.encode(details).ok()
    }

    pub(crate) fn last_details<T: DeserializeOwned>(&self) -> Option<T> {
        self.codec.decode(self.before.clone()?).and_then(|plain| plain.decode()).ok()
    }
}

impl Drop for AttemptInfo {
    fn drop(&mut self) {
        if let Some(HeartbeatTarget { heartbeats, run, op }) = &self.sending
            && self.signals.heartbeat.get_mut().is_some()
        {
            if *self.signals.is_dropped.get_mut() {
                heartbeats.forget(*run, *op);
            } else {
                heartbeats.drop_unsent(*run, *op);
            }
        }
    }
}
