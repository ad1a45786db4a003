//! Attempts: the step code of one run that is under way.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future::BoxFuture};
use outlast_core::{Clock, Failure, FailureKind, OpNumber, Payload, Policy, RunId, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::error::{NextAttempt, StepError};
use crate::ids::chance;
use crate::registry::StepCall;
use crate::replay::{Delivery, Machine, StepToAttempt};
use crate::step::About;

/// How one attempt ended.
#[derive(Debug)]
pub(super) struct AttemptEnd {
    pub(super) op: OpNumber,
    pub(super) at: Timestamp,
    name: Arc<str>,
    attempt: u32,
    policy: Policy,
    result: Result<Payload, StepError>,
}

impl AttemptEnd {
    /// What the run is told: the outcome, or that another attempt follows.
    pub(super) fn into_delivery(self, machine: &Machine) -> Delivery {
        let op = self.op;
        let (failure, next) = match self.result {
            Ok(output) => return Delivery::StepEnded { op, outcome: Ok(output) },
            Err(error) => error.into_parts(),
        };
        let retry = self.policy.retry;
        let pause = retry.pause_after(self.attempt, &failure, chance());
        let retry_at = pause.map(|pause| next.unwrap_or(NextAttempt::After(pause)).moment(self.at));
        let is_exhausted = failure.kind.is_retryable() && retry.is_exhausted(self.attempt);
        let failure = Failure { is_exhausted, ..failure.of_step(&*self.name, self.attempt) };
        match retry_at {
            Some(retry_at) if machine.may_retry(op) => {
                Delivery::StepRetried { op, attempt: self.attempt, failure, retry_at }
            }
            _ => Delivery::StepEnded { op, outcome: Err(failure) },
        }
    }
}

/// The attempts of one run that are under way.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    running: FuturesUnordered<BoxFuture<'static, Option<AttemptEnd>>>,
    stops: HashMap<OpNumber, CancellationToken>,
}

impl Attempts {
    pub(super) fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    pub(super) fn ops(&self) -> HashSet<OpNumber> {
        self.stops.keys().copied().collect()
    }

    /// Starts the steps. A single one runs in the run's own task, which saves two thread hops;
    /// several get tasks of their own, so that they run in parallel.
    pub(super) fn start(
        &mut self,
        run: RunId,
        steps: Vec<(StepToAttempt, StepCall)>,
        clock: &Arc<dyn Clock>,
        runtime: &tokio::runtime::Handle,
    ) {
        let is_alone = steps.len() == 1 && self.stops.is_empty();
        for (step, call) in steps {
            let stop = CancellationToken::new();
            self.stops.insert(step.op, stop.clone());
            let attempt = attempt(run, step, call, stop, clock.clone());
            if is_alone {
                self.running.push(Box::pin(attempt.map(Some)));
            } else {
                let task = runtime.spawn(attempt);
                self.running.push(Box::pin(task.map(Result::ok)));
            }
        }
    }

    /// The next attempt to end. Never completes when none is under way.
    pub(super) async fn next(&mut self) -> AttemptEnd {
        loop {
            match self.running.next().await {
                Some(Some(end)) => {
                    self.stops.remove(&end.op);
                    return end;
                }
                // A task that the runtime dropped, at shutdown.
                Some(None) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// An attempt that has ended already.
    pub(super) fn try_next(&mut self) -> Option<AttemptEnd> {
        self.next().now_or_never()
    }

    /// Tells every attempt that the run was cancelled.
    pub(super) fn tell_all_to_stop(&self) {
        for stop in self.stops.values() {
            stop.cancel();
        }
    }

    /// What is left when the run goes on without the attempts: they may land, unheard.
    pub(super) fn into_orphans(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.stops.is_empty() {
            return None;
        }
        self.stops.clear();
        let mut running = std::mem::take(&mut self.running);
        Some(async move { while running.next().await.is_some() {} })
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.tell_all_to_stop();
    }
}

async fn attempt(
    run: RunId,
    step: StepToAttempt,
    call: StepCall,
    stop: CancellationToken,
    clock: Arc<dyn Clock>,
) -> AttemptEnd {
    let StepToAttempt { op, name, input, policy, attempt, .. } = step;
    let about = Arc::new(About { run, op, attempt, stop: stop.clone() });
    let work = AssertUnwindSafe(async move { call(about, input).await }).catch_unwind();
    let work = work.map(|result| result.unwrap_or_else(|panic| Err(panicked(&*panic))));
    let result = match policy.timeout {
        None => work.await,
        Some(limit) => within(limit, work.boxed(), &*clock).await,
    };
    if result.is_err() {
        stop.cancel();
    }
    AttemptEnd { op, at: clock.now(), name, attempt, policy, result }
}

type Work = Pin<Box<dyn Future<Output = Result<Payload, StepError>> + Send>>;

async fn within(limit: Duration, work: Work, clock: &dyn Clock) -> Result<Payload, StepError> {
    match select(work, clock.sleep_until(clock.now().plus(limit))).await {
        Either::Left((result, _)) => result,
        Either::Right(_) => {
            let limit = outlast_core::duration::duration_text(limit);
            let message = format!("the attempt took longer than its timeout of {limit}");
            Err(StepError::of_failure(Failure::new(FailureKind::Timeout, message)))
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> StepError {
    let message = format!("the step panicked: {}", crate::replay::panic_text(panic));
    StepError::of_failure(Failure::new(FailureKind::Panic, message))
}
