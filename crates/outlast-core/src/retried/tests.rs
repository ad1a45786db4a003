//! Histories are written as text: one event per line, with its number at the beginning of a turn.

use std::sync::Arc;

use super::*;
use crate::cut::{ReplayHistory, skipped_events};
use crate::event::RunStarted;
use crate::failure::{Failure, FailureKind};
use crate::forked::RunForked;
use crate::payload::Payload;
use crate::queue::default_queue;
use crate::run::ParentEnd;

fn started() -> Event {
    Event::from(RunStarted {
        workflow: "wf".into(),
        version: 1,
        rules: 2,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Default::default(),
        tags: Default::default(),
        parent: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
        forked: None,
    })
}

fn step(op: u64) -> Event {
    let (op, name): (_, Arc<str>) = (OpNumber(op), format!("step {op}").into());
    Event::StepStarted {
        op,
        name,
        input: Payload::null(),
        queued: None,
        is_once: op.0 == 99,
        is_transactional: false,
    }
}

fn done(op: u64) -> Event {
    Event::StepCompleted { op: OpNumber(op), output: Payload::null() }
}

fn failed(op: u64) -> Event {
    Event::StepFailed { op: OpNumber(op), failure: failure().of_step("step", 1) }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Error, "no")
}

fn end(op: u64) -> Event {
    Event::RunFailed { failure: failure().of_operation(op) }
}

fn retried(from: u64, reopens: u64, next_op: u64) -> Event {
    Event::RunRetried(Box::new(RunRetried {
        from,
        reopens: OpNumber(reopens),
        next_op: OpNumber(next_op),
        restarts: Vec::new(),
        renews: Vec::new(),
        adoptable: Vec::new(),
        deadline: None,
        message: MessageId::from_bits(1),
        reason: String::new(),
        actor: None,
    }))
}

fn history(turns: Vec<Vec<Event>>) -> Vec<TurnRecord> {
    let mut seq = 0;
    let record = |events: Vec<Event>| {
        let first = seq;
        seq += events.len() as u64;
        let at = Timestamp::from_micros(first as i64);
        TurnRecord { id: TurnId::from_bits(u128::from(first) + 1), seq: first, at, build: "b".into(), events }
    };
    turns.into_iter().map(record).collect()
}

/// Three steps; the first to end fails, and the others complete afterwards.
fn siblings() -> Vec<TurnRecord> {
    history(vec![
        vec![started(), step(0), step(1), step(2)],
        vec![failed(1), step(3)],
        vec![done(0)],
        vec![done(3), done(2), end(1)],
    ])
}

fn ops(plan: &RetryPlan) -> Vec<u64> {
    plan.open.iter().map(|open| open.op.0).collect()
}

#[test]
fn a_plan_reopens_the_operation_whose_failure_the_workflow_returned() {
    let plan = RetryPlan::of(&siblings(), None, false).unwrap();
    assert_eq!((plan.reopens, plan.from, plan.events), (OpNumber(1), 4, 10));
    assert_eq!((ops(&plan), plan.recorded_again), (vec![1], 2));
}

#[test]
fn a_split_records_outcomes_of_older_operations_again_and_no_others() {
    let request = RetryPlan::of(&siblings(), None, false).unwrap().request(None, false, String::new());
    let split = request.split(siblings());
    assert_eq!(split.replayed.iter().map(|turn| turn.events.len()).collect::<Vec<_>>(), [4]);
    let again: Vec<_> = split.again.into_iter().map(|(_, event)| event).collect();
    assert_eq!((again, split.next_op), (vec![done(0), done(2)], OpNumber(5)));
}

#[test]
fn a_named_operation_may_have_completed_or_been_open() {
    let plan = RetryPlan::of(&siblings(), Some(OpNumber(0)), false).unwrap();
    assert_eq!((plan.from, ops(&plan)), (6, vec![0]), "what failed before stays failed");
    let open = history(vec![vec![started(), step(0), step(1)], vec![failed(0), end(0)]]);
    let plan = RetryPlan::of(&open, Some(OpNumber(1)), false).unwrap();
    assert_eq!((plan.from, ops(&plan)), (3, vec![1]), "the failure is recorded again");
}

#[test]
fn a_replay_skips_what_retries_have_skipped() {
    let mut turns = siblings();
    turns.push(history(vec![vec![retried(4, 1, 4), done(0), done(2)], vec![failed(1), end(1)]]).remove(0));
    turns.last_mut().unwrap().seq = 10;
    let replayed = ReplayHistory::of(turns.clone()).unwrap();
    let kinds: Vec<_> = replayed.events().map(Event::kind).collect();
    let expected =
        ["step_started", "step_started", "step_started", "run_retried", "step_completed", "step_completed"];
    assert_eq!(kinds, expected);
    assert!(skipped_events(&turns).contains(&(4..10)));
    // A second retry from an earlier point skips the first one as well.
    turns.push(TurnRecord { seq: 13, events: vec![retried(4, 1, 4)], ..turns[0].clone() });
    assert_eq!(retried_ranges(&turns), vec![4..13]);
    // One from a later point does not.
    turns.last_mut().unwrap().events = vec![retried(11, 0, 4)];
    assert_eq!(retried_ranges(&turns), [4..10, 11..13]);
}

#[test]
fn runs_that_cannot_be_retried_say_why() {
    let refusal = |turns: Vec<Vec<Event>>, op: Option<u64>| {
        RetryPlan::of(&history(turns), op.map(OpNumber), false).unwrap_err().to_string()
    };
    let own = Event::RunFailed { failure: failure() };
    let text = refusal(vec![vec![started(), step(0)], vec![done(0), own]], None);
    assert!(text.starts_with("its failure did not come from an operation (\"no\")"), "{text}");
    let text = refusal(vec![vec![started(), step(0)], vec![done(0)]], None);
    assert!(text.starts_with("it is running; only a run that has failed"), "{text}");
    let text = refusal(vec![vec![started(), step(0)], vec![failed(0), end(0)]], Some(7));
    assert!(text.starts_with("it has no operation 7"), "{text}");
    let text = refusal(vec![vec![started(), step(99)], vec![failed(99), end(99)]], None);
    assert!(text.starts_with("step `step 99` (operation 99) is attempted at most once"), "{text}");
    let value = Event::ValueRecorded { op: OpNumber(0), name: "v".into(), value: Ok(Payload::null()) };
    let text = refusal(vec![vec![started(), value, step(1)], vec![failed(1), end(1)]], Some(0));
    assert!(text.contains("it is not a step, timer, hook or child"), "{text}");
}

#[test]
fn a_plan_lists_the_tokens_that_the_run_holds_or_has_asked_for_at_the_cut_point() {
    let asked = |op: u64, token: &str| {
        Event::TokenRequested(Box::new(crate::event::TokenRequested {
            op: OpNumber(op),
            name: "review".into(),
            token: token.into(),
            is_generated: false,
            metadata: None,
            webhook: None,
            keep_for: None,
        }))
    };
    let taken = |op: u64| Event::TokenTaken { op: OpNumber(op) };
    let closed = |op: u64| Event::TokenClosed { op: OpNumber(op) };
    let turns = history(vec![
        vec![started(), asked(0, "a"), asked(1, "b"), asked(2, "a"), asked(3, "c"), step(4)],
        vec![taken(0)],
        // The same run takes its token over.
        vec![taken(2)],
        vec![taken(1), closed(1)],
        vec![failed(4)],
        vec![taken(3), closed(2)],
        vec![end(4)],
    ]);
    let plan = RetryPlan::of(&turns, None, false).unwrap();
    let tokens: Vec<_> = plan
        .tokens
        .iter()
        .map(|token| (token.op.0, &*token.token, token.is_taken, token.is_closed))
        .collect();
    assert_eq!(tokens, [(2, "a", true, true), (3, "c", false, false)]);
    assert_eq!(plan.request(None, false, String::new()).tokens, [2, 3]);
}

fn child(op: u64, run: u128) -> Event {
    Event::ChildStarted(Box::new(ChildStarted {
        op: OpNumber(op),
        run: RunId::from_bits(run),
        workflow: "child".into(),
        version: 1,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        timeout_at: None,
        on_parent_end: ParentEnd::Cancel,
        is_detached: false,
    }))
}

#[test]
fn the_end_of_a_fork_has_cancelled_its_own_children_and_not_those_of_the_other_run() {
    let own = RestartedRun { op: OpNumber(1), run: RunId::from_bits(77) };
    let forked =
        RunForked { of: RunId::from_bits(5), next_op: OpNumber(2), restarts: vec![own], renews: Vec::new() };
    let turns = history(vec![
        vec![started(), child(0, 10), child(1, 11)],
        vec![Event::RunForked(Box::new(forked)), step(2), child(3, 13)],
        vec![failed(2), end(2)],
    ]);
    let plan = RetryPlan::of(&turns, None, false).unwrap();
    let cancelled: Vec<_> = plan.cancelled_children.iter().map(|child| child.run.bits()).collect();
    assert_eq!(cancelled, [77, 13]);
}
