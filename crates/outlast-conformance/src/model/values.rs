//! Builds the arguments of operations: starts, messages, turns and queries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{NAME_BYTES_MAX, QUEUE_DEFAULT};
use outlast_core::turn::BasedOn;
use outlast_core::{
    BuiltInRuns, HeartbeatDetails, HolderColumns, Join, ListOrder, Marks, MessageBody, NewChild, NewMessage,
    OpNumber, Outcome, Parent, Payload, QueuedSteps, RunId, RunQuery, SessionId, Start, Tags, Then,
    Timestamp, Turn, TurnColumns, TurnId,
};

use super::op::{
    AttemptDetails, ChildRequest, ListQuery, MessageKind, Mistake, NewStart, Tag, ThenKind, TurnShape,
};
use super::runs::{Model, ModelRun};
use crate::suite::turn_ext::{TurnExt as _, stuck_by, wait, wait_until};
use crate::suite::{Case, TestWorker};

const WORKFLOWS: [&str; 3] = ["a", "b", "step:s"];

const QUEUES: [&str; 3] = [QUEUE_DEFAULT, "q-1", "q-2"];

/// The calls so far, to be repeated later.
#[derive(Default)]
pub(super) struct PastCalls {
    pub(super) starts: Vec<Start>,
    pub(super) messages: Vec<NewMessage>,
    pub(super) turns: Vec<(SessionId, Turn)>,
    // Includes ended sessions, so that fencing is tested too.
    pub(super) workers: Vec<(Option<TestWorker>, Join, bool)>,
}

/// The element with a number, modulo the length.
pub(super) fn pick<T>(list: &[T], number: usize) -> Option<&T> {
    list.get(number.checked_rem(list.len())?)
}

fn pick_run(model: &Model, number: usize) -> Option<RunId> {
    pick(&model.runs, number).map(|run| run.view.id)
}

pub(super) fn start(case: &Case, new: NewStart) -> Start {
    let workflow = WORKFLOWS[new.workflow];
    let mut start = match new.key {
        Some(key) => case.new_keyed_start(workflow, &format!("key-{key}"), &format!("in-{}", new.input)),
        None => case.new_start(workflow),
    };
    let window = new.window_micros.map(Duration::from_micros);
    start.key.iter_mut().for_each(|key| key.window = window);
    let later = |micros| case.clock.now().plus(Duration::from_micros(micros));
    Start {
        rules: new.rules,
        queue: QUEUES[new.queue].into(),
        priority: new.priority,
        tags: tags(new.tag),
        not_before: new.begins_in_micros.map(later),
        deadline: new.deadline_in_micros.map(later),
        policy: None,
        requester: None,
        ending: None,
        ..start
    }
}

/// The heartbeat details in a beat of a session.
pub(super) fn details(
    model: &Model,
    session: SessionId,
    details: &[AttemptDetails],
) -> Vec<HeartbeatDetails> {
    let held = model.held(session);
    let details = details.iter().filter_map(|details| {
        let held = pick(&held, details.run).copied().filter(|_| !details.run.is_multiple_of(4));
        let run = held.or_else(|| pick_run(model, details.run))?;
        let progress = details.progress.map(|progress| Payload::from_json_text(progress.to_string()));
        Some(HeartbeatDetails { run, op: OpNumber(details.op), attempt: details.attempt, details: progress })
    });
    // One entry per step.
    let steps: BTreeMap<_, _> = details.map(|details| ((details.run, details.op), details)).collect();
    steps.into_values().collect()
}

/// The queues that a worker serves.
pub(super) fn queues(number: usize) -> Arc<[Arc<str>]> {
    let served: [&[&str]; 4] = [&QUEUES[..1], &QUEUES[1..], &QUEUES, &[]];
    served[number].iter().map(|queue| (*queue).into()).collect()
}

fn tags(tags: impl IntoIterator<Item = Tag>) -> Tags {
    tags.into_iter().map(|(name, value)| (format!("tag-{name}"), format!("value-{value}"))).collect()
}

pub(super) fn message(case: &Case, run: RunId, kind: MessageKind) -> NewMessage {
    match kind {
        MessageKind::Hook => case.new_message(run, "x"),
        MessageKind::Cancel => case.new_cancel(run),
        MessageKind::Terminate => {
            case.new_message_of(run, MessageBody::Terminate { reason: "enough".into() })
        }
        MessageKind::Wake => case.new_message_of(run, MessageBody::Wake { op: Some(OpNumber(0)) }),
        MessageKind::ChildEnded => {
            let outcome = Outcome::Completed(Payload::null());
            case.new_message_of(run, MessageBody::ChildEnded { op: OpNumber(0), outcome })
        }
    }
}

/// A turn of a run as its holder would compute it, with a mistake.
pub(super) fn turn(
    case: &Case,
    model: &Model,
    past: &mut PastCalls,
    run: usize,
    shape: &TurnShape,
    mistake: Mistake,
) -> Option<(SessionId, Turn)> {
    let held: Vec<_> = model.runs.iter().filter(|run| run.view.owner.is_some()).collect();
    // Mostly held runs, sometimes any run.
    let run = pick(&held, run).copied().filter(|_| !run.is_multiple_of(8)).or(pick(&model.runs, run))?;
    let session = match mistake {
        Mistake::From(session) => pick(&past.workers, session)?.1.session,
        _ => run.view.owner?,
    };
    let build = past.workers.iter().find(|(_, join, _)| join.session == session)?.1.build.clone();
    let consumes = shape.consumes.min(run.unread().len());
    // Every message that is consumed becomes an event.
    let shape = TurnShape { events: shape.events.max(consumes as u32), ..shape.clone() };
    let turn = turn_without_events(case, run, &shape, mistake, consumes as u64);
    Some((session, finish_turn(case, model, past, turn, &shape, &build)))
}

fn turn_without_events(
    case: &Case,
    run: &ModelRun,
    shape: &TurnShape,
    mistake: Mistake,
    consumes: u64,
) -> Turn {
    let crashes = if shape.clears_crashes { 0 } else { run.crashes };
    let after = HolderColumns { crashes, kept: shape.kept, ..run.columns() };
    let from = if mistake == Mistake::Stale { TurnId::from_bits(case.id()) } else { run.turn };
    Turn {
        run: run.view.id,
        id: TurnId::from_bits(case.id()),
        based_on: BasedOn::Turn(from),
        seq: run.seq(),
        at: case.clock.now(),
        build: "".into(),
        events: Vec::new(),
        consumed: run.view.consumed + consumes,
        fired_until: shape.fires_micros_ago.map(|ago| time_before(case.clock.now(), ago)),
        columns: TurnColumns::changed(run.columns().into(), after),
        outbox: None,
        then: Then::Hold,
    }
}

pub(super) fn time_before(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros() - micros as i64)
}

pub(super) fn finish_turn(
    case: &Case,
    model: &Model,
    past: &mut PastCalls,
    turn: Turn,
    shape: &TurnShape,
    build: &str,
) -> Turn {
    let mut turn = Turn { build: build.into(), ..turn }.steps(shape.events);
    if shape.clears_deadline {
        turn = turn.clearing_deadline();
    }
    if shape.asks_to_stop {
        turn = turn.with_cancel_requested();
    }
    let turn = with_outbox(case, model, past, turn, shape);
    match shape.then {
        ThenKind::Hold => turn,
        ThenKind::Release => turn.then(Then::Release),
        ThenKind::Complete => turn.completing("out"),
        ThenKind::Fail => turn.failing(),
        ThenKind::Cancel => turn.cancelling(),
        // A stuck turn has no decisions, so it fires no timer.
        ThenKind::Stuck => Turn { fired_until: None, ..turn.then(stuck_by(build)) },
        ThenKind::Wait { wake_in_micros: None } => turn.then(wait()),
        ThenKind::Wait { wake_in_micros: Some(micros) } => {
            turn.then(wait_until(case.clock.now().plus(Duration::from_micros(micros))))
        }
    }
}

/// Adds the effects on other runs to a turn.
fn with_outbox(case: &Case, model: &Model, past: &mut PastCalls, mut turn: Turn, shape: &TurnShape) -> Turn {
    let root = model.runs.iter().find(|run| run.view.id == turn.run).map_or(turn.run, |run| run.view.root());
    let mut targets = Vec::new();
    for (op, child) in shape.children.iter().enumerate() {
        let parent = Parent { run: turn.run, op: OpNumber(op as u64), root, awaits: true };
        let Some(child) = new_child(case, past, parent, *child) else { continue };
        past.starts.push(child.start.clone());
        targets.push(child.start.run);
        turn = turn.child(child);
    }
    targets.extend(model.runs.iter().map(|run| run.view.id).filter(|run| *run != turn.run));
    for (target, kind) in &shape.messages {
        let Some(target) = pick(&targets, *target) else { continue };
        let message = message(case, *target, *kind);
        past.messages.push(message.clone());
        turn = turn.sending(message);
    }
    tags(shape.tag).iter().fold(turn, |turn, (name, value)| turn.tagged(name, value))
}

fn new_child(case: &Case, past: &PastCalls, parent: Parent, child: ChildRequest) -> Option<NewChild> {
    let (start, notify_parent) = match child {
        ChildRequest::New { start: new, notify_parent } => (start(case, new), notify_parent),
        ChildRequest::Again { start, notify_parent } => (pick(&past.starts, start)?.clone(), notify_parent),
        ChildRequest::Refused => (case.new_start(&"n".repeat(NAME_BYTES_MAX + 1)), false),
    };
    Some(NewChild { start: Start { parent: Some(parent), ..start }, notify_parent })
}

pub(super) fn query(model: &Model, query: ListQuery) -> RunQuery {
    let run = |number: Option<usize>| pick_run(model, number?);
    let created_at = |number: Option<usize>| pick(&model.runs, number?).map(|run| run.view.created_at);
    RunQuery {
        marks: Marks::NONE,
        statuses: query.status.into_iter().collect(),
        workflow: query.workflow.map(|workflow| WORKFLOWS[workflow].into()),
        queue: query.queue.map(|queue| QUEUES[queue].into()),
        queued_steps: if query.lists_steps { QueuedSteps::Listed } else { QueuedSteps::LeftOut },
        built_in: BuiltInRuns::default(),
        key: query.key.map(|key| format!("key-{key}")),
        parent: run(query.parent),
        root: run(query.root),
        tags: tags(query.tags.into_iter().flatten()),
        created_from: created_at(query.created_from),
        created_before: created_at(query.created_before),
        text: run(query.text).map(|run| run.to_string()[22..].to_lowercase()),
        order: if query.oldest_first { ListOrder::OldestFirst } else { ListOrder::NewestFirst },
        after: run(query.after),
        before: run(query.before),
        limit: query.limit,
        ..RunQuery::default()
    }
}
