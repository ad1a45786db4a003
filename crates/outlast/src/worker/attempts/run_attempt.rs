//! One attempt: waits for permits, runs the step's code, and enforces timeouts.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use outlast_core::{Failure, FailureKind, Payload, Policy, Timestamp};
use tokio::sync::Semaphore;
use tracing::{Instrument, Span};

use super::PreparedStep;
use super::attempt_end::{AttemptEnd, AttemptFailure};
use crate::authoring::attempt::{AttemptInfo, StopReason};
use crate::authoring::registry::StepCall;
use crate::error::StepError;
use crate::replay::polling::{self, Misuse};
use crate::replay::{StepToAttempt, panic_text, used_in_step};
use crate::telemetry::trace;
use crate::worker::metrics::RunningAttempt;

/// Makes an attempt, for a run with these rules. `None` if the attempt was prevented before it began.
pub(super) async fn run_attempt(
    prepared: PreparedStep,
    info: Arc<AttemptInfo>,
    running: RunningAttempt,
    rules: u32,
) -> Option<AttemptEnd> {
    let PreparedStep { step, call, limits, .. } = prepared;
    let StepToAttempt { op, name, input, policy, attempt, begins_after_cancel, .. } = step;
    let permitted = acquire_permits(limits, &info, begins_after_cancel).await;
    if !info.begin() {
        return None;
    }
    let began_at = info.services.clock.now();
    let result = match permitted {
        Ok(()) => match trace::attempt_span(&info) {
            span if span.is_disabled() => run_step(call, input, &policy, &info).await,
            // Boxed because most programs have no subscriber for it, and it would enlarge the state of every attempt.
            span => Box::pin(run_step_in(span, call, input, &policy, &info)).await,
        },
        Err(cancelled) => Err(cancelled),
    };
    let ended_at = info.services.clock.now();
    running.step.metric.attempts.of(outcome_label(&result)).metric.time(ended_at.since(began_at));
    // The attempt has ended when its last chunk was accepted.
    let at = if info.finish_streams().await { info.services.clock.now() } else { ended_at };
    info.permits.lock().clear();
    // Since rules 2, an input that the code cannot decode does not count as an attempt.
    let has_failed = result.as_ref().is_err_and(|error| !error.is_stuck(rules));
    running.meter.attempts_failed.add(has_failed.into());
    let result = result.map_err(|error| {
        info.stop(StopReason::Failed);
        let details = info.take_details();
        Box::new(AttemptFailure { id: info.id, name, attempt, policy, details, error })
    });
    let recorded = match &result {
        Ok(_) => info.transaction.as_ref().and_then(|transaction| transaction.recorded()).map(Box::new),
        Err(_) => None,
    };
    Some(AttemptEnd { op, at, result, recorded })
}

/// Acquires a permit of each limit. Fails if the attempt is asked to stop in the meantime: then it does not begin.
async fn acquire_permits(
    limits: Vec<Arc<Semaphore>>,
    info: &AttemptInfo,
    begins_after_cancel: bool,
) -> Result<(), StepError> {
    let cancelled = || {
        let message = "cancelled before the attempt began";
        StepError::of_failure(Failure::new(FailureKind::Cancelled, message))
    };
    for limit in limits {
        match select(pin!(limit.acquire_owned()), pin!(info.stopped())).await {
            // These semaphores are never closed.
            Either::Left((permit, _)) => info.permits.lock().extend(permit.ok()),
            Either::Right(_) => return Err(cancelled()),
        }
    }
    // There may be no limit, or the permit and the request to stop may have arrived at the same time.
    let is_cancelled = match info.stop_reason() {
        None => false,
        Some(StopReason::Dropped) => true,
        Some(_) => !begins_after_cancel,
    };
    if is_cancelled { Err(cancelled()) } else { Ok(()) }
}

/// The value of the label `outcome`.
fn outcome_label(result: &Result<Payload, StepError>) -> &'static str {
    match result.as_ref().map_err(StepError::failure_kind) {
        Ok(_) => "completed",
        Err(FailureKind::Timeout) => "timed_out",
        Err(FailureKind::Panic) => "panicked",
        Err(FailureKind::Cancelled) => "cancelled",
        Err(_) => "failed",
    }
}

/// Runs the step's code in a span.
async fn run_step_in(
    span: Span,
    call: StepCall,
    input: Payload,
    policy: &Policy,
    info: &Arc<AttemptInfo>,
) -> Result<Payload, StepError> {
    #[cfg(feature = "attempt-log")]
    let _logged = crate::telemetry::attempt_log::LoggedAttempt::of(&span, info);
    let result = run_step(call, input, policy, info).instrument(span.clone()).await;
    if result.is_err() {
        trace::span_failed(&span, outcome_label(&result));
    }
    result
}

/// Runs the step's code, until it returns or a timeout of the policy has passed.
async fn run_step(
    call: StepCall,
    input: Payload,
    policy: &Policy,
    info: &Arc<AttemptInfo>,
) -> Result<Payload, StepError> {
    let code = poll_step_code(call, input, info);
    if policy.timeout.is_none() && policy.heartbeat_timeout.is_none() {
        return code.await;
    }
    let timeout = Box::pin(wait_for_timeout(policy, info));
    match select(code.boxed(), timeout).await {
        Either::Left((result, _)) => result,
        // The outcome is being recorded: the attempt ends with the transaction.
        Either::Right((_, code)) if !info.give_up_transaction() => code.await,
        Either::Right((message, code)) => {
            // Dropping values of the step's code may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(code)));
            Err(StepError::of_failure(Failure::new(FailureKind::Timeout, message)))
        }
    }
}

/// Polls the step's code. A panic is a failed attempt, and so is the use of a run's context, which steps must not use.
fn poll_step_code(
    call: StepCall,
    input: Payload,
    info: &Arc<AttemptInfo>,
) -> impl Future<Output = Result<Payload, StepError>> + Send + use<> {
    let (info, mut arguments, mut running) = (info.clone(), Some((info.clone(), input)), None);
    poll_fn(move |cx| {
        let poll = AssertUnwindSafe(|| {
            if let Some((info, input)) = arguments.take() {
                running = Some(call(info, input));
            }
            running.as_mut().map_or(Poll::Pending, |running| running.as_mut().poll(cx))
        });
        let (polled, misuse) = polling::attempt(info.clone(), || catch_unwind(poll));
        if let Some(Misuse::Context(did)) = misuse {
            // Dropping values of the step's code may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(running.take())));
            return Poll::Ready(Err(StepError::context_used(used_in_step(&info.step, &did))));
        }
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
    })
}

/// Completes when the attempt has exceeded its timeout or its heartbeat timeout. Returns the failure's message.
async fn wait_for_timeout(policy: &Policy, info: &AttemptInfo) -> String {
    let began_at = info.services.clock.now();
    let end = policy.timeout.map_or(Timestamp::NEVER, |limit| began_at.plus(limit));
    loop {
        let heartbeat_at = info.last_heartbeat_at().unwrap_or(began_at);
        let heartbeat_end =
            policy.heartbeat_timeout.map_or(Timestamp::NEVER, |limit| heartbeat_at.plus(limit));
        let now = info.services.clock.now();
        if now >= end {
            let limit = text_of(policy.timeout);
            return format!("the attempt took longer than its timeout of {limit}");
        }
        if now >= heartbeat_end {
            let limit = text_of(policy.heartbeat_timeout);
            return format!("the attempt had no heartbeat for longer than its heartbeat timeout of {limit}");
        }
        drop(info.services.clock.sleep_until(end.min(heartbeat_end)).await);
    }
}

fn text_of(limit: Option<Duration>) -> String {
    outlast_core::duration::duration_text(limit.unwrap_or_default())
}

/// The error of an attempt that panicked.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> StepError {
    let message = format!("the step panicked: {}", panic_text(panic));
    StepError::of_failure(Failure::new(FailureKind::Panic, message))
}
