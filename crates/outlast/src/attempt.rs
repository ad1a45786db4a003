//! Attempts from the step's point of view: the future of its code, and the signals that it receives.

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

use crate::clock::SystemClock;
use crate::error::StepError;
use crate::replay::polling;
use crate::step::StepDefinition;
use crate::worker::heartbeats::Heartbeats;

/// One attempt at a step: the future that the function of a step returns.
///
/// Awaiting it runs the step's code, so a unit test can call a step as a plain function. The code of a blocking step
/// runs on the blocking pool of the tokio runtime in which the attempt is awaited.
///
/// A workflow must not await an attempt: it requests the step with `ctx.step(mail, n)` instead of calling `mail(n)`. If
/// a workflow awaits an attempt, the step's code does not run, and the run becomes stuck with a message that says so.
#[must_use = "an attempt does nothing unless it is awaited"]
pub struct Attempt<D: StepDefinition> {
    work: Work<Result<D::Output, StepError>>,
}

enum Work<R> {
    Async(Pin<Box<dyn Future<Output = R> + Send>>),
    Blocking(Box<dyn FnOnce() -> R + Send>),
    OnItsThread(JoinHandle<R>),
    Over,
}

impl<D: StepDefinition> Attempt<D> {
    /// Creates an attempt from the future of a step's code.
    pub fn new(future: impl Future<Output = Result<D::Output, StepError>> + Send + 'static) -> Self {
        Self { work: Work::Async(Box::pin(future)) }
    }

    /// Creates an attempt from code that blocks its thread.
    pub fn blocking(work: impl FnOnce() -> Result<D::Output, StepError> + Send + 'static) -> Self {
        Self { work: Work::Blocking(Box::new(work)) }
    }

    /// The same attempt. Its thread, if it blocks one, keeps the permits until it is free: nobody can
    /// stop it, and it may outlive the attempt.
    pub(crate) fn keeping(self, about: &About) -> Self {
        match self.work {
            Work::Blocking(work) => {
                let permits = std::mem::take(&mut *about.permits.lock());
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
            && let Work::Blocking(work) = std::mem::replace(&mut self.work, Work::Over)
        {
            // What it logs belongs to the attempt, on whatever thread.
            let span = tracing::Span::current();
            self.work = Work::OnItsThread(tokio::task::spawn_blocking(move || span.in_scope(work)));
        }
        match &mut self.work {
            Work::Async(future) => future.as_mut().poll(cx),
            Work::OnItsThread(thread) => Pin::new(thread).poll(cx).map(|ended| match ended {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(StepError::msg("the runtime stopped before the attempt began")),
                },
            }),
            Work::Blocking(_) | Work::Over => Poll::Pending,
        }
    }
}

impl<D: StepDefinition> fmt::Debug for Attempt<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attempt({})", D::NAME)
    }
}

/// The reason why an attempt is asked to stop; see [`StepContext::stop_reason`](crate::StepContext::stop_reason).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The run was cancelled, or its deadline has passed. The result of the attempt is still the outcome of the step.
    Cancelled,
    /// The workflow no longer waits for the step: it dropped the operation, for example as the loser of a race, or the
    /// run has ended.
    Dropped,
    /// The worker releases the run, because it stops or has lost its session. Another attempt will be made.
    Released,
    /// The attempt has failed, for example by its timeout. Tasks or threads that it left behind may see this.
    Failed,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cancelled => "the run was cancelled",
            Self::Dropped => "nobody waits for the step any more",
            Self::Released => "the worker lets go of the run",
            Self::Failed => "the attempt has failed",
        })
    }
}

/// What an attempt is told, and tells.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) run: RunId,
    pub(crate) op: OpNumber,
    pub(crate) id: AttemptId,
    /// The step's name; empty when nobody watches.
    pub(crate) step: Arc<str>,
    /// What travels with the run.
    pub(crate) headers: Arc<Headers>,
    pub(crate) attempt: u32,
    /// Whether no other attempt was made before, for sure.
    pub(crate) is_first: bool,
    /// Whether a worker that is gone may have made this attempt.
    pub(crate) is_doubtful: bool,
    /// Whether there is no other attempt after this one.
    pub(crate) is_at_most_once: bool,
    /// What allows it to be under way.
    pub(crate) permits: Mutex<Vec<OwnedSemaphorePermit>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) codec: Arc<dyn Codec>,
    /// What an earlier attempt said last, as recorded.
    pub(crate) before: Option<Payload>,
    /// How the details of its heartbeats come to the world.
    pub(crate) sending: Option<Sending>,
    pub(crate) signals: Signals,
}

/// The attempt has not begun.
const WAITING: u8 = 0;
/// The step's code runs, or has run.
const BEGUN: u8 = 1;
/// The step was ended before its code ran, which therefore never runs.
const WITHHELD: u8 = 2;

/// What an attempt is told while it is under way, and what it told last.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Whether the attempt has begun, or never will: [`WAITING`], [`BEGUN`] or [`WITHHELD`].
    stage: AtomicU8,
    stop_reason: OnceLock<StopReason>,
    /// Whether it was said that details of heartbeats are left out.
    has_warned: AtomicBool,
    stopped: Notify,
    heartbeat: Mutex<Option<Heartbeat>>,
    /// Whether nobody waits for the step any more: its heartbeat details are not kept.
    is_dropped: AtomicBool,
}

impl Signals {
    /// Whether the attempt was waiting; then it is at this stage now.
    fn leave_waiting(&self, stage: u8) -> bool {
        self.stage.compare_exchange(WAITING, stage, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The run that is held, its operation, and where details wait for the worker's next beat.
#[derive(Debug)]
pub(crate) struct Sending {
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

impl About {
    /// A first attempt that nobody watches.
    pub(crate) fn unwatched() -> Self {
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

    /// Tells the attempt to stop. The first reason stays.
    pub(crate) fn stop(&self, reason: StopReason) {
        // Before the hint: whoever it wakes finds the reason.
        let _ = self.signals.stop_reason.set(reason);
        self.signals.stopped.notify_waiters();
    }

    /// Nobody waits for the step any more: tells the attempt to stop, and keeps no details that it reports from now on.
    pub(crate) fn withdraw(&self) {
        self.signals.is_dropped.store(true, Ordering::Release);
        self.stop(StopReason::Dropped);
    }

    /// Begins the attempt, unless it was withheld.
    pub(crate) fn begin(&self) -> bool {
        self.signals.leave_waiting(BEGUN)
    }

    /// Keeps the attempt from beginning; false when it has begun.
    pub(crate) fn withhold(&self) -> bool {
        let is_withheld = self.signals.leave_waiting(WITHHELD);
        if is_withheld {
            self.stop(StopReason::Cancelled);
        }
        is_withheld
    }

    /// Why the attempt was told to stop, if it was.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        self.signals.stop_reason.get().copied()
    }

    /// Completes when the attempt is told to stop.
    pub(crate) async fn stopped(&self) {
        // Before the look: it hears every hint from now on.
        let stopped = self.signals.stopped.notified();
        if self.stop_reason().is_none() {
            stopped.await;
        }
    }

    pub(crate) fn beat(&self, details: impl Serialize) {
        let details = match Payload::json(&details) {
            Ok(details) => Some(details),
            Err(error) => {
                self.warn_of_details(&error);
                None
            }
        };
        let at = self.clock.now();
        if let (Some(Sending { heartbeats, run, op }), Some(details)) = (&self.sending, &details)
            && !self.signals.is_dropped.load(Ordering::Acquire)
        {
            heartbeats.put(*run, *op, self.attempt, details.clone());
        }
        let mut heartbeat = self.signals.heartbeat.lock();
        // A heartbeat whose details are no good is still one; the details before it are the last there are.
        let details = details.or_else(|| heartbeat.take().and_then(|before| before.details));
        *heartbeat = Some(Heartbeat { at, details });
    }

    /// Says once per attempt that the details of its heartbeats are left out.
    fn warn_of_details(&self, error: &PayloadError) {
        if !self.signals.has_warned.swap(true, Ordering::Relaxed) {
            let Self { run, step, attempt, .. } = self;
            tracing::warn!(%run, %step, attempt, "the details of a heartbeat are left out: {error}");
        }
    }

    /// When the attempt was last heard of.
    pub(crate) fn beaten_at(&self) -> Option<Timestamp> {
        self.signals.heartbeat.lock().as_ref().map(|heartbeat| heartbeat.at)
    }

    /// What the attempt said last, to be recorded.
    pub(crate) fn take_details(&self) -> Option<Payload> {
        let details =
            self.signals.heartbeat.lock().as_mut().and_then(|heartbeat| heartbeat.details.take())?;
        self.codec.encode(details).ok()
    }

    pub(crate) fn details_before<T: DeserializeOwned>(&self) -> Option<T> {
        self.codec.decode(self.before.clone()?).and_then(|plain| plain.decode()).ok()
    }
}

impl Drop for About {
    fn drop(&mut self) {
        if let Some(Sending { heartbeats, run, op }) = &self.sending
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
