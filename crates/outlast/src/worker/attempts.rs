//! The running attempts of one run.
//!
//! A single attempt is polled by the task of its run, which saves two thread hops. Several concurrent attempts get
//! tasks of their own, so that they run in parallel.

pub(super) mod attempt_end;

mod run_attempt;

pub(crate) mod heartbeats;

pub(crate) mod transaction;

pub(super) mod retry_events;

pub(super) mod uncommitted_outcomes;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, ready};

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future::BoxFuture};
use outlast_core::{AttemptId, Event, Headers, OpNumber, Requester, RunId, SessionId, World};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::Instrument;

use self::attempt_end::{AttemptEnd, AttemptFailure};
pub(crate) use self::run_attempt::panicked;
use self::run_attempt::run_attempt;
use self::transaction::AttemptTransaction;
use self::uncommitted_outcomes::UncommittedOutcomes;
use super::background_drops::BackgroundDrops;
use super::metrics::Meter;
use crate::authoring::attempt::{AttemptInfo, AttemptSignals, StopReason};
use crate::authoring::attempt_services::AttemptServices;
use crate::authoring::registry::StepCall;
use crate::replay::{DropInBackground, StepToAttempt};
use crate::telemetry::ProcessMetrics;

/// Generates the ids of a session's attempts.
#[derive(Debug)]
pub(super) struct AttemptIds {
    session: SessionId,
    next: AtomicU64,
}

impl AttemptIds {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, next: AtomicU64::new(0) }
    }

    fn next(&self) -> AttemptId {
        AttemptId::new(self.session, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// A step with everything that is needed to attempt it now.
pub(super) struct PreparedStep {
    pub(super) step: StepToAttempt,
    /// Whether it is certain that no other attempt was made before.
    pub(super) is_first: bool,
    /// Whether a lost worker may have made this attempt.
    pub(super) is_maybe_attempted: bool,
    pub(super) call: StepCall,
    /// The attempt needs a permit of each of these before it begins, in this order.
    pub(super) limits: Vec<Arc<Semaphore>>,
    /// The index of the step among the registered steps, from 1; 0 if it is not registered.
    pub(super) step_index: usize,
    /// Whether the outcome is recorded in the transaction of the attempt.
    pub(super) is_transactional: bool,
}

/// The parts of the session and the run that attempts use.
pub(super) struct AttemptEnvironment<'a> {
    pub(super) services: &'a Arc<AttemptServices>,
    pub(super) runtime: &'a tokio::runtime::Handle,
    pub(super) meter: &'a Arc<Meter>,
    pub(super) metrics: &'a ProcessMetrics,
    /// The headers of the run.
    pub(super) headers: &'a Arc<Headers>,
    /// The workflow and tags of the run that requested the steps.
    pub(super) requester: &'a Requester,
    pub(super) ids: &'a AttemptIds,
    pub(super) world: &'a Arc<dyn World>,
    /// The rules of the run.
    pub(super) rules: u32,
    /// Where attempts with tasks of their own store their ends.
    pub(super) outcomes: &'a UncommittedOutcomes,
}

/// The running attempts of one run.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The attempt that the run's task polls. Most runs have no others.
    inline: Option<InlineAttempt>,
    /// The attempts with tasks of their own.
    spawned: Option<Box<SpawnedAttempts>>,
    /// Where the future of an attempt is dropped whose run is given up.
    drops: Option<Arc<BackgroundDrops>>,
}

struct InlineAttempt {
    op: OpNumber,
    info: Arc<AttemptInfo>,
    future: BoxFuture<'static, Option<AttemptEnd>>,
}

#[derive(Debug, Default)]
struct SpawnedAttempts {
    tasks: FuturesUnordered<BoxFuture<'static, Option<AttemptEnd>>>,
    infos: BTreeMap<OpNumber, Arc<AttemptInfo>>,
}

impl std::fmt::Debug for InlineAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InlineAttempt").field("op", &self.op).finish_non_exhaustive()
    }
}

impl SpawnedAttempts {
    /// Returns the next attempt that ends. If none is running, returns `Pending` and registers no waker: the caller
    /// polls again after it has started one.
    fn poll_next(&mut self, cx: &mut TaskContext<'_>) -> Poll<AttemptEnd> {
        loop {
            match ready!(self.tasks.poll_next_unpin(cx)) {
                Some(Some(end)) => {
                    self.infos.remove(&end.op);
                    return Poll::Ready(end);
                }
                // The runtime dropped the task at shutdown, or the attempt was prevented.
                Some(None) => {}
                None => return Poll::Pending,
            }
        }
    }
}

impl Attempts {
    pub(super) fn new(drops: Arc<BackgroundDrops>) -> Self {
        Self { inline: None, spawned: None, drops: Some(drops) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.infos().next().is_none()
    }

    /// Whether the run's task polls an attempt.
    pub(super) fn has_inline(&self) -> bool {
        self.inline.is_some()
    }

    /// The steps that are being attempted.
    pub(super) fn ops(&self) -> BTreeSet<OpNumber> {
        self.infos().map(|(op, _)| op).collect()
    }

    /// The steps that are being attempted and are attempted at most once.
    pub(super) fn at_most_once(&self) -> BTreeSet<OpNumber> {
        self.infos().filter(|(_, info)| info.is_at_most_once).map(|(op, _)| op).collect()
    }

    fn infos(&self) -> impl Iterator<Item = (OpNumber, &Arc<AttemptInfo>)> {
        let inline = self.inline.iter().map(|inline| (inline.op, &inline.info));
        let spawned = self.spawned.iter().flat_map(|spawned| &spawned.infos);
        inline.chain(spawned.map(|(op, info)| (*op, info)))
    }

    /// Starts attempts at the steps. `requested_by` is the operation that requested the step, if the run is a queued
    /// step.
    pub(super) fn start(
        &mut self,
        run: RunId,
        requested_by: Option<(RunId, OpNumber)>,
        steps: Vec<PreparedStep>,
        environment: &AttemptEnvironment<'_>,
    ) {
        let is_inline = steps.len() == 1 && self.is_empty();
        for prepared in steps {
            let info = Arc::new(attempt_info(run, requested_by, &prepared, environment));
            let op = prepared.step.op;
            let measured = environment.metrics.steps.of(&prepared.step.name);
            let running = environment.meter.begin_attempt(prepared.step_index, measured);
            if is_inline {
                let future = Box::pin(run_attempt(prepared, info.clone(), running, environment.rules));
                self.inline = Some(InlineAttempt { op, info, future });
                return;
            }
            let panicked_end = end_of_panicked_task(&prepared.step, info.id, environment);
            let slot = environment.outcomes.add_attempt();
            let attempt = run_attempt(prepared, info.clone(), running, environment.rules);
            let task_slot = slot.clone();
            // The span of the attempt is inside that of the segment.
            let attempt = attempt.in_current_span();
            let task = environment.runtime.spawn(attempt.map(move |end| task_slot.put(end)));
            let end = move |ended: Result<(), _>| ended.map_or_else(panicked_end, |()| slot.take());
            let spawned = self.spawned.get_or_insert_default();
            spawned.infos.insert(op, info);
            spawned.tasks.push(Box::pin(task.map(end)));
        }
    }

    /// Returns the next attempt that ends. Never completes if no attempt is running.
    pub(super) async fn next(&mut self) -> AttemptEnd {
        poll_fn(|cx| {
            if let Some(InlineAttempt { future, .. }) = &mut self.inline
                && let Poll::Ready(end) = future.as_mut().poll(cx)
            {
                self.inline = None;
                if let Some(end) = end {
                    return Poll::Ready(end);
                }
            }
            self.spawned.as_mut().map_or(Poll::Pending, |spawned| spawned.poll_next(cx))
        })
        .await
    }

    /// Returns an attempt that has ended already.
    pub(super) fn try_next(&mut self) -> Option<AttemptEnd> {
        self.next().now_or_never()
    }

    /// Asks the attempt at a step to stop, because the workflow dropped the step. If it has not begun, it does not
    /// begin.
    pub(super) fn drop_step(&self, op: OpNumber) {
        if let Some(info) = self.info(op) {
            info.drop_step();
        }
    }

    /// Asks the attempt at a step to stop, because the workflow cancelled the step. Its outcome is awaited.
    pub(super) fn cancel_step(&self, op: OpNumber) {
        if let Some(info) = self.info(op) {
            info.stop(StopReason::Cancelled);
        }
    }

    fn info(&self, op: OpNumber) -> Option<&Arc<AttemptInfo>> {
        let inline = self.inline.as_ref().filter(|inline| inline.op == op).map(|inline| &inline.info);
        inline.or_else(|| self.spawned.as_ref()?.infos.get(&op))
    }

    /// Prevents attempts that have not begun, except those at the steps `spared`, because their steps are about to be
    /// recorded as not being attempted. Returns the steps of the prevented attempts, and for each whether a lost worker
    /// may have made the attempt.
    pub(super) fn prevent(&mut self, spared: &BTreeSet<OpNumber>) -> BTreeMap<OpNumber, bool> {
        let waiting = self.infos().filter(|(op, info)| !spared.contains(op) && info.prevent());
        let prevented: BTreeMap<_, _> = waiting.map(|(op, info)| (op, info.is_maybe_attempted)).collect();
        self.inline.take_if(|inline| prevented.contains_key(&inline.op));
        if let Some(spawned) = &mut self.spawned {
            spawned.infos.retain(|op, _| !prevented.contains_key(op));
        }
        prevented
    }

    /// Asks all attempts to stop, except those at the steps `spared`.
    pub(super) fn ask_to_stop_except(&self, spared: &BTreeSet<OpNumber>, reason: StopReason) {
        for (op, info) in self.infos() {
            if !spared.contains(&op) {
                info.stop(reason);
            }
        }
    }

    /// Returns a future that completes when all attempts have ended, for a run that does not await them. They are asked
    /// to stop, and their outcomes are discarded.
    pub(super) fn detach(mut self) -> Option<impl Future<Output = ()> + Send + 'static> {
        if self.is_empty() {
            return None;
        }
        self.infos().for_each(|(_, info)| {
            info.drop_step();
            // The run may be claimed again before the attempt ends; what it writes would be out of date.
            info.abandon_streams();
        });
        let (inline, spawned) = (self.inline.take(), self.spawned.take());
        Some(async move {
            if let Some(InlineAttempt { future, .. }) = inline {
                future.await;
            }
            if let Some(mut spawned) = spawned {
                while spawned.tasks.next().await.is_some() {}
            }
        })
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.ask_to_stop_except(&BTreeSet::new(), StopReason::Released);
        self.infos().for_each(|(_, info)| info.abandon_streams());
        if let (Some(inline), Some(drops)) = (self.inline.take(), &self.drops) {
            drops.put(Box::new(inline.future));
        }
    }
}

/// The steps that a turn with these events dropped.
pub(super) fn dropped_steps(events: &[Event]) -> Vec<OpNumber> {
    let dropped = events.iter().filter_map(|event| match event {
        Event::StepDropped { op } => Some(*op),
        _ => None,
    });
    dropped.collect()
}

/// The operations that a turn with these events cancelled.
pub(super) fn cancelled_operations(events: &[Event]) -> Vec<OpNumber> {
    let cancelled = events.iter().filter_map(|event| match event {
        Event::OperationCancelled { op } => Some(*op),
        _ => None,
    });
    cancelled.collect()
}

/// The end of an attempt whose task has ended without a result. A panic that was not caught is a failed attempt; when
/// the runtime shuts down, the attempt has no end.
fn end_of_panicked_task(
    step: &StepToAttempt,
    id: AttemptId,
    environment: &AttemptEnvironment<'_>,
) -> impl FnOnce(tokio::task::JoinError) -> Option<AttemptEnd> + Clone + use<> {
    let (op, name, attempt, policy) = (step.op, step.name.clone(), step.attempt, step.policy);
    let (services, meter) = (environment.services.clone(), environment.meter.clone());
    move |error: tokio::task::JoinError| {
        let panic = error.try_into_panic().ok()?;
        meter.attempts_failed.add(1);
        let error = panicked(&*panic);
        let failure = AttemptFailure { id, name, attempt, policy, details: None, error };
        Some(AttemptEnd { op, at: services.clock.now(), result: Err(Box::new(failure)), recorded: None })
    }
}

/// What the step's code can find out about its attempt, and how the attempt is asked to stop.
fn attempt_info(
    run: RunId,
    requested_by: Option<(RunId, OpNumber)>,
    prepared: &PreparedStep,
    environment: &AttemptEnvironment<'_>,
) -> AttemptInfo {
    let step = &prepared.step;
    let transaction = prepared.is_transactional.then(|| {
        Arc::new(AttemptTransaction::new(environment.world.clone(), environment.ids.session, run, step))
    });
    let held_operation = (run, step.op);
    let (run, op) = requested_by.unwrap_or(held_operation);
    let info = AttemptInfo {
        run,
        op,
        id: environment.ids.next(),
        step: step.name.clone(),
        headers: environment.headers.clone(),
        workflow: environment.requester.workflow.clone(),
        tags: environment.requester.tags.clone(),
        services: environment.services.clone(),
        attempt: step.attempt,
        is_first: prepared.is_first,
        is_maybe_attempted: prepared.is_maybe_attempted,
        is_at_most_once: step.policy.is_at_most_once,
        permits: Mutex::default(),
        held_operation,
        earlier_details: step.details.clone(),
        stream_buffer: OnceLock::new(),
        transaction,
        signals: AttemptSignals::default(),
    };
    if step.is_cancelled {
        info.stop(StopReason::Cancelled);
    }
    info
}
