//! Attempts: the step code of one run that is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future::BoxFuture};
use outlast_core::{
    AttemptId, Clock, Codec, Event, Failure, FailureKind, Headers, OpNumber, Payload, Policy, RunId,
    SessionId, Stuck, Timestamp,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::heartbeats::Heartbeats;
use super::metrics::{Meter, UnderWay};
use super::outcomes::Outcomes;
use crate::authoring::attempt::{AttemptInfo as About, HeartbeatTarget as Sending, Signals, StopReason};
use crate::authoring::registry::StepCall;
use crate::error::{NextAttempt, StepError};
use crate::ids::chance;
use crate::replay::polling::{self, Misuse};
use crate::replay::{Delivery, Machine, StepToAttempt, used_in_step};

/// Makes the ids of a session's attempts.
#[derive(Debug)]
pub(super) struct AttemptIds {
    session: SessionId,
    begun: AtomicU64,
}

impl AttemptIds {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, begun: AtomicU64::new(0) }
    }

    fn next(&self) -> AttemptId {
        AttemptId::new(self.session, self.begun.fetch_add(1, Ordering::Relaxed))
    }
}

/// How one attempt ended.
#[derive(Debug)]
pub(super) struct AttemptEnd {
    pub(super) op: OpNumber,
    pub(super) at: Timestamp,
    result: Result<Payload, Box<Unsuccessful>>,
}

/// What is known of an attempt that failed. Boxed: most succeed, and every end is moved several times.
#[derive(Debug)]
struct Unsuccessful {
    id: AttemptId,
    name: Arc<str>,
    attempt: u32,
    policy: Policy,
    /// The details of its last heartbeat.
    details: Option<Payload>,
    error: StepError,
}

/// An attempt that failed: its step, its number and its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedAttempt {
    pub(super) op: OpNumber,
    pub(super) attempt: u32,
    pub(super) id: AttemptId,
}

impl AttemptEnd {
    /// Why the run is stuck instead of the attempt having failed: the step's code cannot read the input, or used
    /// the context of a run.
    pub(super) fn stuck(&self, machine: &Machine) -> Option<Stuck> {
        self.result.as_ref().err()?.error.stuck(machine.rules())
    }

    /// What the history gets of it, if it counts: a build that can read the input makes an attempt that this one
    /// could not make.
    pub(super) fn event(&self, may_retry: impl FnOnce(Timestamp) -> bool) -> Option<Event> {
        let op = self.op;
        let delivery = match &self.result {
            Ok(output) => Delivery::StepEnded { op, outcome: Ok(output.clone()) },
            Err(failed) if failed.error.is_stuck(2) => return None,
            Err(failed) => {
                let may_retry = |at| if may_retry(at) { Ok(()) } else { Err(None) };
                failed.copy().into_delivery(op, self.at, may_retry)
            }
        };
        delivery.outcome()
    }

    /// The id of the attempt by its step and number, if it failed.
    pub(super) fn failed(&self) -> Option<FailedAttempt> {
        let Unsuccessful { id, attempt, .. } = **self.result.as_ref().err()?;
        Some(FailedAttempt { op: self.op, attempt, id })
    }

    /// What the run is told: the outcome, or that another attempt follows.
    pub(super) fn into_delivery(self, machine: &Machine) -> Delivery {
        let op = self.op;
        match self.result {
            Ok(output) => Delivery::StepEnded { op, outcome: Ok(output) },
            Err(failed) => {
                failed.into_delivery(op, self.at, |retry_at| match machine.may_retry(op, retry_at) {
                    true => Ok(()),
                    false if machine.rules() < 2 => Err(None),
                    false => Err(machine.deadline_before(op, retry_at)),
                })
            }
        }
    }
}

impl Unsuccessful {
    fn copy(&self) -> Self {
        let (name, details, error) = (self.name.clone(), self.details.clone(), self.error.copy());
        Self { name, details, error, ..*self }
    }

    /// `may_retry` says whether another attempt may be made at a moment, or which deadline it would pass.
    fn into_delivery(
        self,
        op: OpNumber,
        at: Timestamp,
        may_retry: impl FnOnce(Timestamp) -> Result<(), Option<Timestamp>>,
    ) -> Delivery {
        let Self { name, attempt, policy, details, error, .. } = self;
        let (failure, next) = error.into_parts();
        let retry = policy.retry();
        let pause = retry.pause_after(attempt, &failure, chance());
        let retry_at = pause.map(|pause| next.unwrap_or(NextAttempt::After(pause)).moment(at));
        let is_exhausted = failure.kind.is_retryable() && retry.is_exhausted(attempt);
        let mut failure = Failure { is_exhausted, ..failure.of_step(&*name, attempt) };
        let Some(retry_at) = retry_at else {
            return Delivery::StepEnded { op, outcome: Err(failure) };
        };
        match may_retry(retry_at) {
            Ok(()) => Delivery::StepRetried { op, attempt, failure, retry_at, details },
            Err(deadline) => {
                if let Some(deadline) = deadline {
                    failure.add_to_message(&format!(
                        " (not attempted again: that would be at {retry_at}, after the run's deadline of {deadline})"
                    ));
                }
                Delivery::StepEnded { op, outcome: Err(failure) }
            }
        }
    }
}

/// A step that may be attempted now.
pub(super) struct Ready {
    pub(super) step: StepToAttempt,
    /// Whether no other attempt was made before, for sure.
    pub(super) is_first: bool,
    /// Whether a worker that is gone may have made this attempt.
    pub(super) is_doubtful: bool,
    pub(super) call: StepCall,
    /// What must let the attempt pass before it begins, in this order.
    pub(super) gates: Vec<Arc<Semaphore>>,
    /// The step's place among those that are registered; 0 if it is not.
    pub(super) place: usize,
}

/// What attempts are made with.
pub(super) struct Tools<'a> {
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) codec: &'a Arc<dyn Codec>,
    pub(super) runtime: &'a tokio::runtime::Handle,
    pub(super) meter: &'a Arc<Meter>,
    pub(super) heartbeats: &'a Arc<Heartbeats>,
    /// What travels with the run.
    pub(super) headers: &'a Arc<Headers>,
    pub(super) ids: &'a AttemptIds,
    /// The rules of the run.
    pub(super) rules: u32,
    /// Where attempts with tasks of their own leave how they ended.
    pub(super) outcomes: &'a Outcomes,
}

/// The attempts of one run that are under way.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The one that runs in the run's own task. Most runs have no other.
    alone: Option<Alone>,
    /// Those that have tasks of their own.
    spawned: Option<Box<Spawned>>,
}

struct Alone {
    op: OpNumber,
    about: Arc<About>,
    running: BoxFuture<'static, Option<AttemptEnd>>,
}

#[derive(Debug, Default)]
struct Spawned {
    running: FuturesUnordered<BoxFuture<'static, Option<AttemptEnd>>>,
    /// What they are told, by step.
    under_way: BTreeMap<OpNumber, Arc<About>>,
}

impl std::fmt::Debug for Alone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alone").field("op", &self.op).finish_non_exhaustive()
    }
}

impl Spawned {
    /// The next attempt to end.
    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<AttemptEnd> {
        loop {
            match ready!(self.running.poll_next_unpin(cx)) {
                Some(Some(end)) => {
                    self.under_way.remove(&end.op);
                    return Poll::Ready(end);
                }
                // A task that the runtime dropped, at shutdown; or an attempt that was withheld.
                Some(None) => {}
                None => return Poll::Pending,
            }
        }
    }
}

impl Attempts {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way().next().is_none()
    }

    pub(super) fn ops(&self) -> BTreeSet<OpNumber> {
        self.under_way().map(|(op, _)| op).collect()
    }

    /// What the attempts are told, by step.
    fn under_way(&self) -> impl Iterator<Item = (OpNumber, &Arc<About>)> {
        let alone = self.alone.iter().map(|alone| (alone.op, &alone.about));
        alone
            .chain(self.spawned.iter().flat_map(|spawned| &spawned.under_way).map(|(op, about)| (*op, about)))
    }

    /// Starts the steps. A single one runs in the run's own task, which saves two thread hops;
    /// several get tasks of their own, so that they run in parallel. `asker` is whom they work for, if
    /// not this run.
    pub(super) fn start(
        &mut self,
        run: RunId,
        asker: Option<(RunId, OpNumber)>,
        steps: Vec<Ready>,
        tools: &Tools<'_>,
    ) {
        let is_alone = steps.len() == 1 && self.is_empty();
        for ready in steps {
            let about = Arc::new(about(run, asker, &ready, tools));
            let op = ready.step.op;
            let under_way = tools.meter.begin(ready.place);
            if is_alone {
                let running = Box::pin(attempt(ready, about.clone(), under_way, tools.rules));
                self.alone = Some(Alone { op, about, running });
                return;
            }
            let stranded = stranding(&ready.step, about.id, tools);
            let slot = tools.outcomes.begin();
            let (attempt, ended) = (attempt(ready, about.clone(), under_way, tools.rules), slot.clone());
            let task = tools.runtime.spawn(attempt.map(move |end| ended.put(end)));
            let end = move |ended: Result<(), _>| ended.map_or_else(stranded, |()| slot.take());
            let spawned = self.spawned.get_or_insert_default();
            spawned.under_way.insert(op, about);
            spawned.running.push(Box::pin(task.map(end)));
        }
    }

    /// The next attempt to end. Never completes when none is under way.
    pub(super) async fn next(&mut self) -> AttemptEnd {
        poll_fn(|cx| {
            if let Some(Alone { running, .. }) = &mut self.alone
                && let Poll::Ready(end) = running.as_mut().poll(cx)
            {
                self.alone = None;
                if let Some(end) = end {
                    return Poll::Ready(end);
                }
            }
            self.spawned.as_mut().map_or(Poll::Pending, |spawned| spawned.poll_next(cx))
        })
        .await
    }

    /// An attempt that has ended already.
    pub(super) fn try_next(&mut self) -> Option<AttemptEnd> {
        self.next().now_or_never()
    }

    /// The workflow dropped the step: its attempt is told to stop, and does not begin if it has not yet.
    pub(super) fn withdraw(&self, op: OpNumber) {
        let alone = self.alone.as_ref().filter(|alone| alone.op == op).map(|alone| &alone.about);
        let spawned = || self.spawned.as_ref()?.under_way.get(&op);
        if let Some(about) = alone.or_else(spawned) {
            about.withdraw();
        }
    }

    /// Keeps attempts that have not begun from beginning, except those at these steps: the steps are about to be
    /// ended as not being attempted. Answers which steps nobody attempts, and whether a worker that is gone may
    /// have made the attempt.
    pub(super) fn withhold(&mut self, spared: &BTreeSet<OpNumber>) -> BTreeMap<OpNumber, bool> {
        let waiting = self.under_way().filter(|(op, about)| !spared.contains(op) && about.withhold());
        let withheld: BTreeMap<_, _> = waiting.map(|(op, about)| (op, about.is_doubtful)).collect();
        self.alone.take_if(|alone| withheld.contains_key(&alone.op));
        if let Some(spawned) = &mut self.spawned {
            spawned.under_way.retain(|op, _| !withheld.contains_key(op));
        }
        withheld
    }

    /// Tells every attempt to stop.
    pub(super) fn tell_all_to_stop(&self, reason: StopReason) {
        self.tell_to_stop_except(&BTreeSet::new(), reason);
    }

    /// The same, but not those at these steps.
    pub(super) fn tell_to_stop_except(&self, spared: &BTreeSet<OpNumber>, reason: StopReason) {
        for (op, about) in self.under_way() {
            if !spared.contains(&op) {
                about.stop(reason);
            }
        }
    }

    /// What is left when the run goes on without the attempts. They are told to stop; those that have begun may
    /// finish, and nobody learns how.
    pub(super) fn into_orphans(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.is_empty() {
            return None;
        }
        self.under_way().for_each(|(_, about)| about.withdraw());
        let (alone, spawned) = (self.alone.take(), self.spawned.take());
        Some(async move {
            if let Some(Alone { running, .. }) = alone {
                running.await;
            }
            if let Some(mut spawned) = spawned {
                while spawned.running.next().await.is_some() {}
            }
        })
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.tell_all_to_stop(StopReason::Released);
    }
}

/// The steps that a turn dropped.
pub(super) fn dropped_steps(events: &[Event]) -> Vec<OpNumber> {
    let dropped = events.iter().filter_map(|event| match event {
        Event::StepDropped { op } => Some(*op),
        _ => None,
    });
    dropped.collect()
}

/// What becomes of an attempt whose task ended without an answer: a panic that nothing caught is a
/// failed attempt; a runtime that shuts down says nothing.
fn stranding(
    step: &StepToAttempt,
    id: AttemptId,
    tools: &Tools<'_>,
) -> impl FnOnce(tokio::task::JoinError) -> Option<AttemptEnd> + Clone + use<> {
    let (op, name, attempt, policy) = (step.op, step.name.clone(), step.attempt, step.policy);
    let (clock, meter) = (tools.clock.clone(), tools.meter.clone());
    move |error: tokio::task::JoinError| {
        let panic = error.try_into_panic().ok()?;
        meter.attempts_failed.add(1);
        let error = panicked(&*panic);
        let failed = Unsuccessful { id, name, attempt, policy, details: None, error };
        Some(AttemptEnd { op, at: clock.now(), result: Err(Box::new(failed)) })
    }
}

/// What an attempt at a step is told.
fn about(run: RunId, asker: Option<(RunId, OpNumber)>, ready: &Ready, tools: &Tools<'_>) -> About {
    let step = &ready.step;
    let sending = Sending { heartbeats: tools.heartbeats.clone(), run, op: step.op };
    let (run, op) = asker.unwrap_or((run, step.op));
    let about = About {
        run,
        op,
        id: tools.ids.next(),
        step: step.name.clone(),
        headers: tools.headers.clone(),
        attempt: step.attempt,
        is_first: ready.is_first,
        is_doubtful: ready.is_doubtful,
        is_at_most_once: step.policy.is_at_most_once,
        permits: Mutex::default(),
        clock: tools.clock.clone(),
        codec: tools.codec.clone(),
        before: step.details.clone(),
        sending: Some(sending),
        signals: Signals::default(),
    };
    if step.is_cancelled {
        about.stop(StopReason::Cancelled);
    }
    about
}

/// Makes an attempt, in a run with these rules. One that was withheld ends without an answer.
async fn attempt(ready: Ready, about: Arc<About>, under_way: UnderWay, rules: u32) -> Option<AttemptEnd> {
    let Ready { step, call, gates, .. } = ready;
    let StepToAttempt { op, name, input, policy, attempt, begins_when_told, .. } = step;
    let passed = pass(gates, &about, begins_when_told).await;
    if !about.begin() {
        return None;
    }
    let result = match passed {
        Ok(()) => match span_of(&about) {
            span if span.is_disabled() => work(call, input, &policy, &about).await,
            // Boxed: without a subscriber there is none.
            span => Box::pin(work(call, input, &policy, &about).instrument(span)).await,
        },
        Err(cancelled) => Err(cancelled),
    };
    about.permits.lock().clear();
    // Since rules 2 an input that cannot be read is no attempt.
    let has_failed = result.as_ref().is_err_and(|error| !error.is_stuck(rules));
    under_way.meter.attempts_failed.add(has_failed.into());
    let result = result.map_err(|error| {
        about.stop(StopReason::Failed);
        let details = about.take_details();
        Box::new(Unsuccessful { id: about.id, name, attempt, policy, details, error })
    });
    Some(AttemptEnd { op, at: about.clock.now(), result })
}

/// Waits until all the gates let the attempt pass. What is told to stop or dropped meanwhile never begins.
async fn pass(gates: Vec<Arc<Semaphore>>, about: &About, begins_when_told: bool) -> Result<(), StepError> {
    let never = || {
        let message = "cancelled before the attempt began";
        StepError::of_failure(Failure::new(FailureKind::Cancelled, message))
    };
    for gate in gates {
        match select(pin!(gate.acquire_owned()), pin!(about.stopped())).await {
            // A gate is never closed.
            Either::Left((permit, _)) => about.permits.lock().extend(permit.ok()),
            Either::Right(_) => return Err(never()),
        }
    }
    // Without a gate, or when both came at the same time.
    let never_begins = match about.stop_reason() {
        None => false,
        Some(StopReason::Dropped) => true,
        Some(_) => !begins_when_told,
    };
    if never_begins { Err(never()) } else { Ok(()) }
}

/// What the lines that a step logs are inside of.
fn span_of(about: &About) -> tracing::Span {
    let About { run, op, id, step, attempt, .. } = about;
    tracing::info_span!("attempt", %run, %op, %step, attempt, attempt_id = %id)
}

async fn work(
    call: StepCall,
    input: Payload,
    policy: &Policy,
    about: &Arc<About>,
) -> Result<Payload, StepError> {
    let work = watched(call, input, about);
    if policy.timeout.is_none() && policy.heartbeat_timeout.is_none() {
        return work.await;
    }
    let patience = Box::pin(out_of_patience(policy, about));
    match select(work.boxed(), patience).await {
        Either::Left((result, _)) => result,
        Either::Right((message, work)) => {
            // What it holds may panic when it is let go of.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
            Err(StepError::of_failure(Failure::new(FailureKind::Timeout, message)))
        }
    }
}

/// The step's code, polled as such: a panic is a failed attempt, and a context of a run is not for it.
fn watched(
    call: StepCall,
    input: Payload,
    about: &Arc<About>,
) -> impl Future<Output = Result<Payload, StepError>> + Send + use<> {
    let (step, mut given, mut running) = (about.step.clone(), Some((about.clone(), input)), None);
    poll_fn(move |cx| {
        let poll = AssertUnwindSafe(|| {
            if let Some((about, input)) = given.take() {
                running = Some(call(about, input));
            }
            running.as_mut().map_or(Poll::Pending, |running| running.as_mut().poll(cx))
        });
        let (polled, misuse) = polling::attempt(|| catch_unwind(poll));
        if let Some(Misuse::Context(did)) = misuse {
            // What it holds may panic when it is let go of.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(running.take())));
            return Poll::Ready(Err(StepError::context_used(used_in_step(&step, &did))));
        }
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
    })
}

/// Completes when the attempt has taken too long, or was silent for too long, and says so.
async fn out_of_patience(policy: &Policy, about: &About) -> String {
    let began = about.clock.now();
    let end = policy.timeout.map_or(Timestamp::NEVER, |limit| began.plus(limit));
    loop {
        let heard = about.beaten_at().unwrap_or(began);
        let silent = policy.heartbeat_timeout.map_or(Timestamp::NEVER, |limit| heard.plus(limit));
        let now = about.clock.now();
        if now >= end {
            let limit = text_of(policy.timeout);
            return format!("the attempt took longer than its timeout of {limit}");
        }
        if now >= silent {
            let limit = text_of(policy.heartbeat_timeout);
            return format!("the attempt had no heartbeat for longer than its heartbeat timeout of {limit}");
        }
        drop(about.clock.sleep_until(end.min(silent)).await);
    }
}

fn text_of(limit: Option<Duration>) -> String {
    outlast_core::duration::duration_text(limit.unwrap_or_default())
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> StepError {
    let message = format!("the step panicked: {}", crate::replay::panic_text(panic));
    StepError::of_failure(Failure::new(FailureKind::Panic, message))
}
