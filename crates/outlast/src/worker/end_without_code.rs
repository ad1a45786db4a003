//! Ending runs without their workflow's code: terminated runs, overdue runs whose code no worker has, and runs that are
//! cancelled before their first turn.

mod unreadable;

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::cut::{CarriedChild, last_generation};
use outlast_core::event::{FORMAT, RULES, TurnRecord};
use outlast_core::limits::{INBOX_READ_MAX, SESSION_DEFAULT};
use outlast_core::turn::LastTurn;
use outlast_core::{
    ACTOR_HEADER, ClaimRequest, Claimed, ClaimedHistory, Compensations, EndingRun, Event, Failure, Headers,
    Join, Judgement, Message, MessageBody, MessageId, NewChild, NewMessage, OpNumber, Outbox, Outcome,
    ParentEnd, RestartedRun, RetryRequest, RunId, RunRetried, SessionId, Status, SuspectRoom, Then,
    Timestamp, Turn, World, WorldError, pending_fork,
};

use super::read_all::{add_missing_turns, read_history, read_inbox};
use super::run::pending_retry::{FoundRetry, last_retry};
use crate::ids;

/// The maximum number of runs that one claim of a client returns, if no worker is joined.
const ENDED_MAX: usize = 100;

/// How a claimed run continues, as far as its workflow's code is not needed.
pub(crate) enum EndDecision {
    /// Its code continues it, or the compensations that it has begun.
    Continue,
    /// It ends now.
    End(Box<Ending>),
    /// It ends, after its compensations.
    Compensate(Box<RequestedEnd>),
}

/// A requested end of a run without its workflow's code.
#[derive(Clone, Debug)]
pub(crate) struct RequestedEnd {
    pub(crate) failure: Failure,
    /// Who asked for it, if that is known.
    pub(crate) actor: Option<Arc<str>>,
}

impl RequestedEnd {
    fn new(reason: &str, headers: &Headers) -> Self {
        Self { failure: Failure::terminated(reason), actor: actor_of(headers) }
    }

    fn into_event(self) -> Event {
        Event::RunTerminated { failure: self.failure, actor: self.actor }
    }
}

/// Who sent a message, according to its headers.
pub(crate) fn actor_of(headers: &Headers) -> Option<Arc<str>> {
    headers.get(ACTOR_HEADER).map(|actor| actor.as_str().into())
}

/// The end of a run without its workflow's code.
pub(crate) struct Ending {
    pub(crate) events: Vec<Event>,
    pub(crate) consumed: u64,
    pub(crate) outbox: Option<Box<Outbox>>,
}

/// The reason of the cancel at a run's deadline.
pub(crate) fn deadline_passed(deadline: Timestamp) -> String {
    format!("its deadline, {deadline}, has passed")
}

/// Decides whether a claimed run ends without its code: it was terminated, its deadline has passed and no worker has
/// its code, or it was cancelled before its first turn. A run with registered compensations ends after them, unless it
/// was terminated without them.
pub(crate) async fn decide_end(
    world: &dyn World,
    claimed: &Claimed,
    now: Timestamp,
) -> Result<EndDecision, WorldError> {
    if !may_end(claimed, now) {
        return Ok(EndDecision::Continue);
    }
    let missed_deadline = deadline_before_first_turn(claimed, now);
    let inbox = whole_inbox(world, claimed).await?;
    let retry = last_retry(&inbox);
    let mut requests = inbox.iter().filter_map(|message| match &message.body {
        MessageBody::Terminate { reason } => Some((RequestedEnd::new(reason, &message.headers), false)),
        MessageBody::Compensate { reason } => Some((RequestedEnd::new(reason, &message.headers), true)),
        _ => None,
    });
    let (terminate, is_compensating) = requests.next().unzip();
    if is_compensating.unwrap_or(claimed.is_overdue && terminate.is_none())
        && let Some(decision) = compensations_first(world, claimed, terminate.clone(), retry.as_ref()).await?
    {
        return Ok(decision);
    }
    let (mut events, consumed) = if let Some(end) = terminate {
        (vec![end.into_event()], claimed.consumed)
    } else if let Some(cancel) = claimed.is_fresh.then(|| cancel_before_first_turn(inbox)).flatten() {
        cancel
    } else if let Some(deadline) = missed_deadline {
        (cancel_events(None, deadline_passed(deadline), None), claimed.consumed)
    } else if let Some(end) = overdue(claimed) {
        (vec![end.into_event()], claimed.consumed)
    } else {
        return Ok(EndDecision::Continue);
    };
    let history = match &claimed.history {
        ClaimedHistory::Unreadable(_) => None,
        _ => match replayed_history(world, claimed).await {
            Err(WorldError::Corrupt(_)) => None,
            history => Some(history?),
        },
    };
    if let Some(retried) = history.as_deref().and_then(|history| unrecorded_retry(history, retry)) {
        events.insert(0, retried);
    }
    let (messages, step, rules) = match &history {
        Some(history) => {
            let step = step_after_end(claimed.run, history, &events, now.max(claimed.turn_at));
            (end_messages(claimed.run, history, &events), step, rules_of(history))
        }
        // Whether a step follows its end is not known.
        None => (unreadable::end_messages(world, claimed.run, &events).await?, None, RULES),
    };
    if rules < 2 {
        events.iter_mut().for_each(remove_arrival);
    }
    let outbox = outbox_of(messages, step);
    Ok(EndDecision::End(Box::new(Ending { events, consumed, outbox })))
}

/// The part of a run's history that a replay needs.
async fn replayed_history(world: &dyn World, claimed: &Claimed) -> Result<Vec<TurnRecord>, WorldError> {
    let history = match &claimed.history {
        ClaimedHistory::Whole(history) => history.clone(),
        _ => read_history(world, claimed.run, claimed.columns.replay_from).await?,
    };
    add_missing_turns(world, claimed.run, history).await
}

/// The end of a run whose deadline has passed while no worker had its code.
fn overdue(claimed: &Claimed) -> Option<RequestedEnd> {
    let deadline = claimed.columns.deadline.filter(|_| claimed.is_overdue)?;
    let reason = format!("{}, and no worker has its code", deadline_passed(deadline));
    Some(RequestedEnd::new(&reason, &Headers::new()))
}

/// The decision about a run that must compensate before it ends; `None` if it has nothing to compensate for. Without a
/// readable history that is not known, so the run is not ended.
async fn compensations_first(
    world: &dyn World,
    claimed: &Claimed,
    terminate: Option<RequestedEnd>,
    retry: Option<&FoundRetry>,
) -> Result<Option<EndDecision>, WorldError> {
    let history = match &claimed.history {
        ClaimedHistory::Whole(_) | ClaimedHistory::LeftOut => match replayed_history(world, claimed).await {
            Ok(history) => history,
            Err(WorldError::Corrupt(_)) => return Ok(Some(EndDecision::Continue)),
            Err(error) => return Err(error),
        },
        ClaimedHistory::Unreadable(_) => return Ok(Some(EndDecision::Continue)),
    };
    // A retry that is not recorded yet: only what was registered before its cut point counts.
    let retry = retry.filter(|_| has_ended(&history));
    let compensations = match retry {
        Some((_, request, _)) => Compensations::of(&request.split(history.clone()).replayed),
        None => Compensations::of(&history),
    };
    if retry.is_some() && !compensations.has_unsettled() {
        return Ok(None);
    }
    let compensates_failed_try = || compensations.has_unsettled() && begins_again(&history);
    if claimed.columns.marks.is_compensating() || compensates_failed_try() || has_ended(&history) {
        // The request changes nothing, or is delivered: its compensations are running, or its retry is not recorded yet.
        // The latter needs the code of its workflow.
        return Ok(Some(EndDecision::Continue));
    }
    let end = terminate.or_else(|| overdue(claimed)).filter(|_| compensations.has_unsettled());
    Ok(end.map(|end| EndDecision::Compensate(Box::new(end))))
}

/// Whether a history has the end of a run, which was reopened since then.
fn has_ended(history: &[TurnRecord]) -> bool {
    history.last().and_then(|turn| turn.events.last()).and_then(Status::of_final).is_some()
}

/// The event of a retry that no worker has recorded: a history has one end since its last retry. Nothing of the run begins
/// again.
fn unrecorded_retry(history: &[TurnRecord], retry: Option<FoundRetry>) -> Option<Event> {
    let (message, request, actor) = retry.filter(|_| has_ended(history))?;
    let next_op = request.split(history.into()).next_op;
    let RetryRequest { from, reopens, deadline, ref reason, .. } = *request;
    let (restarts, renews, adoptable, reason) = (Vec::new(), Vec::new(), Vec::new(), reason.clone());
    let retried =
        RunRetried { from, reopens, next_op, restarts, renews, adoptable, deadline, message, reason, actor };
    Some(Event::RunRetried(Box::new(retried)))
}

/// Whether a run waits for its next try.
fn begins_again(history: &[TurnRecord]) -> bool {
    let mut since = last_generation(history).into_iter().flat_map(|(_, _, since)| since);
    since.any(|event| matches!(event, Event::RunRetrying(_)))
}

/// The rules that a run was started with.
fn rules_of(history: &[TurnRecord]) -> u32 {
    last_generation(history).map_or(RULES, |(started, ..)| started.rules)
}

/// Whether a claimed run may be one that ends without its code. Its whole inbox decides.
pub(crate) fn may_end(claimed: &Claimed, now: Timestamp) -> bool {
    let is_unreadable = matches!(claimed.history, ClaimedHistory::Unreadable(_));
    is_unreadable
        || claimed.can_end_without_code
        || claimed.is_overdue
        || deadline_before_first_turn(claimed, now).is_some()
}

/// The deadline of a run, if it passed before the run's first turn.
fn deadline_before_first_turn(claimed: &Claimed, now: Timestamp) -> Option<Timestamp> {
    claimed.columns.deadline.filter(|deadline| claimed.is_fresh && *deadline <= now)
}

/// The messages to other runs when a run ends: its children are asked to stop, and the parent that awaits it receives
/// the outcome.
fn end_messages(run: RunId, history: &[TurnRecord], events: &[Event]) -> Vec<(RunId, MessageBody)> {
    let Some((started, carried, since)) = last_generation(history) else { return Vec::new() };
    let mut open = OpenRuns::default();
    open.children.extend(ended_with_parent(carried));
    since.for_each(|event| open.apply(event));
    if pending_fork(history).is_some() {
        // What is open belongs to the run that was forked.
        open = OpenRuns::default();
    }
    let reason = format!("its parent {run} was ended");
    let cancel = || MessageBody::Cancel { reason: reason.clone() };
    let terminate = || MessageBody::Terminate { reason: reason.clone() };
    let mut bodies: Vec<_> = open.children.into_values().map(|child| (child, cancel())).collect();
    bodies.extend(open.queued_steps.into_values().map(|step| (step, terminate())));
    if let Some(outcome) = events.last().and_then(Outcome::of_final)
        && let Some(parent) = started.parent.filter(|parent| parent.awaits)
    {
        bodies.push((parent.run, MessageBody::ChildEnded { op: parent.op, outcome }));
    }
    bodies
}

/// The runs that open operations of a history await.
#[derive(Default)]
struct OpenRuns {
    /// Without children that outlive the run.
    children: BTreeMap<OpNumber, RunId>,
    queued_steps: BTreeMap<OpNumber, RunId>,
}

impl OpenRuns {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::ChildStarted(child) if child.on_parent_end != ParentEnd::Abandon => {
                self.children.insert(child.op, child.run);
            }
            Event::ChildCompleted { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildCancelled { op, .. } => drop(self.children.remove(op)),
            Event::IterationEnded(ended) => {
                if let Some(cut) = &ended.cut {
                    self.children = ended_with_parent(&cut.children).collect();
                }
            }
            Event::RunRetried(retried) => self.restart(&retried.restarts),
            Event::RunForked(forked) => {
                // The others belong to the run that was forked.
                let is_own = |op: &OpNumber| forked.restarts.iter().any(|restarted| restarted.op == *op);
                self.children.retain(|op, _| is_own(op));
                self.queued_steps.retain(|op, _| is_own(op));
                self.restart(&forked.restarts);
            }
            Event::StepStarted { op, queued: Some(step), .. }
            | Event::CompensationStarted { op, queued: Some(step), .. } => {
                self.queued_steps.insert(*op, step.run);
            }
            Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } | Event::StepDropped { op } => {
                self.queued_steps.remove(op);
            }
            _ => {}
        }
    }

    /// Sets the new runs of operations whose runs were started again.
    fn restart(&mut self, restarts: &[RestartedRun]) {
        for restarted in restarts {
            for runs in [&mut self.children, &mut self.queued_steps] {
                runs.entry(restarted.op).and_modify(|run| *run = restarted.run);
            }
        }
    }
}

/// The children that end with their parent.
fn ended_with_parent(carried: &[CarriedChild]) -> impl Iterator<Item = (OpNumber, RunId)> {
    let ended = carried.iter().filter(|child| child.on_parent_end != ParentEnd::Abandon);
    ended.map(|child| (child.op, child.run))
}

/// The step that starts when a run has ended, if its start has recorded one.
fn step_after_end(run: RunId, history: &[TurnRecord], events: &[Event], at: Timestamp) -> Option<NewChild> {
    let (started, _, since) = last_generation(history)?;
    let on_end = started.ending.as_ref()?.on_end.as_ref()?;
    let since_ops = since.chain(events).filter_map(|event| match event {
        Event::RunRetried(retried) => Some(retried.next_op.0),
        event => event.op().map(|op| op.0 + 1),
    });
    let next_op = OpNumber(since_ops.max().unwrap_or(0).max(first_op(history)));
    let status = events.last().and_then(Status::of_final)?;
    let mut tags = &started.tags;
    for event in history.iter().flat_map(|turn| &turn.events) {
        if let Event::IterationEnded(ended) = event {
            tags = ended.cut.as_ref().map_or(tags, |cut| &cut.tags);
        }
    }
    Some(on_end.start(&EndingRun { run, started, tags, next_op, status, at }))
}

/// The number of the first operation of the last generation.
fn first_op(history: &[TurnRecord]) -> u64 {
    let mut events = history.iter().rev().flat_map(|turn| turn.events.iter().rev());
    let begin = events.find_map(|event| match event {
        Event::RunContinued(continued) => Some(continued.next_op.0),
        _ => None,
    });
    begin.unwrap_or(0)
}

/// An outbox with these messages and this run to start; `None` if there are none.
fn outbox_of(messages: Vec<(RunId, MessageBody)>, step: Option<NewChild>) -> Option<Box<Outbox>> {
    let messages: Vec<_> = messages
        .into_iter()
        .map(|(run, body)| NewMessage { id: ids::message(), run, body, headers: Headers::new() })
        .collect();
    let outbox = Outbox { messages, children: step.into_iter().collect(), ..Outbox::default() };
    (!outbox.is_empty()).then(|| Box::new(outbox))
}

/// All messages that a claimed run has not consumed.
async fn whole_inbox(world: &dyn World, claimed: &Claimed) -> Result<Vec<Message>, WorldError> {
    if matches!(claimed.history, ClaimedHistory::Unreadable(_)) {
        return unreadable::inbox(world, claimed).await;
    }
    let mut inbox = claimed.inbox.clone();
    if inbox.len() >= INBOX_READ_MAX {
        let last = inbox.last().map_or(0, |last| last.position);
        inbox.extend(read_inbox(world, claimed.run, last).await?);
    }
    Ok(inbox)
}

/// The events that cancel a run before its first turn, and the position of the last message that was read.
fn cancel_before_first_turn(inbox: Vec<Message>) -> Option<(Vec<Event>, u64)> {
    let mut events = Vec::new();
    for message in inbox {
        match message.body {
            MessageBody::Hook { name, payload, to } => {
                let (headers, at, judgement) = (message.headers, Some(message.at), Judgement::Kept);
                let message = message.id;
                events.push(Event::HookReceived { name, message, payload, headers, at, judgement, to });
            }
            MessageBody::Cancel { reason } => {
                events.extend(cancel_events(Some(message.id), reason, actor_of(&message.headers)));
                return Some((events, message.position));
            }
            _ => {}
        }
    }
    None
}

/// Removes headers and time from a received payload: rules 1 do not record them.
fn remove_arrival(event: &mut Event) {
    if let Event::HookReceived { headers, at, .. } = event {
        headers.clear();
        *at = None;
    }
}

/// The events that cancel and end a run without a turn.
fn cancel_events(message: Option<MessageId>, reason: String, actor: Option<Arc<str>>) -> Vec<Event> {
    let failure = Failure::cancelled(&reason);
    // The run had no turn, so the cancel ends no operations.
    let (pauses, ends, maybe_attempted) = (Vec::new(), Vec::new(), Vec::new());
    let requested = Event::CancelRequested { message, reason, actor, pauses, ends, maybe_attempted };
    vec![requested, Event::RunCancelled { failure }]
}

/// Ends runs that need no code, with a short session of the client, if no worker is joined to do it.
pub(crate) async fn end_without_worker(world: &Arc<dyn World>) -> Result<(), WorldError> {
    let session = ids::session();
    let join = Join {
        session,
        host: "client".into(),
        pid: ids::process_id(),
        build: "client".into(),
        code: Arc::from([]),
        queues: Arc::from([]),
        time: SESSION_DEFAULT,
        rules: RULES,
        format: FORMAT,
    };
    world.join(join).await?;
    let done = end_all(world, session).await;
    world.leave(session).await?;
    done
}

/// Ends runs that need no code, until there are no more. Does nothing if a worker is joined.
async fn end_all(world: &Arc<dyn World>, session: SessionId) -> Result<(), WorldError> {
    // A worker that was killed may still have a session.
    world.takeover(session).await?;
    // Sessions without code belong to clients that do the same.
    if world.workers().await?.iter().any(|worker| worker.session != session && !worker.code.is_empty()) {
        return Ok(());
    }
    // The end of a run may make its children end: those that no worker has begun.
    while end_claimed(world, session).await? {}
    Ok(())
}

/// Claims and ends runs that need no code. Returns whether there were any.
async fn end_claimed(world: &Arc<dyn World>, session: SessionId) -> Result<bool, WorldError> {
    let request = ClaimRequest {
        limit: ENDED_MAX,
        code: Arc::from([]),
        queues: Arc::from([]),
        build: "client".into(),
        format: FORMAT,
        // No workflow code runs here, so a suspect cannot crash this process.
        suspects: SuspectRoom::AnyClass { room: ENDED_MAX },
        ends_overdue_from: Timestamp::NEVER,
    };
    let work = world.claim(session, request).await?;
    let is_any = !work.claimed.is_empty();
    let mut turns = Vec::with_capacity(work.claimed.len());
    for claimed in work.claimed {
        let now = world.clock().now();
        // A run that must compensate first is left to a worker: it is released when this session leaves.
        if let EndDecision::End(ending) = decide_end(&**world, &claimed, now).await? {
            turns.push(ending.turn(&claimed, "client".into(), now));
        }
    }
    world.commit(session, &turns).await?;
    while world.deliver(session).await?.left > 0 {}
    Ok(is_any)
}

impl Ending {
    /// Returns the turn that ends the run.
    pub(crate) fn turn(self, claimed: &Claimed, build: Arc<str>, now: Timestamp) -> Turn {
        // The last event is always a final one; the default only avoids a panic.
        let status = self.events.last().and_then(Status::of_final).unwrap_or(Status::Cancelled);
        let at = now.max(claimed.turn_at);
        Turn {
            events: self.events,
            consumed: self.consumed,
            outbox: self.outbox,
            then: Then::End(status),
            ..Turn::following(&LastTurn::of(claimed), ids::turn(), at, build)
        }
    }
}
