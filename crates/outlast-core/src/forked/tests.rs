//! The plan of a fork.

use super::*;
use crate::event::Judgement;
use crate::failure::{Failure, FailureKind};
use crate::id::{MessageId, TurnId};
use crate::message::{Headers, HookAddress};
use crate::retried::RunRetried;
use crate::run::Status;
use crate::time::Timestamp;

fn started() -> Event {
    Event::from(RunStarted {
        workflow: "w".into(),
        version: 1,
        rules: 2,
        queue: crate::queue::default_queue(),
        priority: 0,
        key: Some("k".into()),
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::from([("team".to_owned(), "red".to_owned())]),
        parent: None,
        deadline: Some(Timestamp::from_micros(9)),
        policy: None,
        requester: None,
        ending: None,
        forked: None,
    })
}

fn step(op: u64) -> Event {
    Event::StepStarted {
        op: OpNumber(op),
        name: format!("s{op}").into(),
        input: Payload::null(),
        queued: None,
        is_once: op == 9,
        is_transactional: false,
    }
}

fn done(op: u64) -> Event {
    Event::StepCompleted { op: OpNumber(op), output: Payload::null() }
}

fn opened(op: u64) -> Event {
    Event::HookOpened { op: OpNumber(op), name: "h".into(), timeout_at: None, of: None }
}

fn received(judgement: Judgement) -> Event {
    Event::HookReceived {
        name: "h".into(),
        message: MessageId::from_bits(5),
        payload: Payload::null(),
        headers: Headers::new(),
        at: None,
        judgement,
        to: HookAddress::default(),
    }
}

fn failed() -> Event {
    Event::RunFailed { failure: Failure::new(FailureKind::Error, "no") }
}

fn turns(turns: Vec<Vec<Event>>) -> Vec<TurnRecord> {
    let mut seq = 0;
    let turn = |events: Vec<Event>| {
        let (id, at) = (TurnId::from_bits(seq.into()), Timestamp::from_micros(seq as i64));
        let turn = TurnRecord { id, seq, at, build: "b".into(), events };
        seq += turn.events.len() as u64;
        turn
    };
    turns.into_iter().map(turn).collect()
}

fn at(history: &[TurnRecord], at: u64) -> Result<ForkPlan, ForkRefusal> {
    ForkPlan::of(history, ForkPoint::At(at), false)
}

fn outputs(history: &[TurnRecord], ops: &[u64]) -> Result<ForkPlan, ForkRefusal> {
    let ops: Vec<_> = ops.iter().copied().map(OpNumber).collect();
    ForkPlan::of(history, ForkPoint::Outputs(&ops), false)
}

fn open(plan: &ForkPlan) -> Vec<u64> {
    plan.open.iter().map(|open| open.op.0).collect()
}

/// 0 start, 1 and 2 steps; 3 the first is done, 4 another step; 5 the second is done; 6 the third is done, 7 the end.
fn three_steps() -> Vec<TurnRecord> {
    turns(vec![
        vec![started(), step(0), step(1)],
        vec![done(0), step(2)],
        vec![done(1)],
        vec![done(2), Event::RunCompleted { output: Payload::null() }],
    ])
}

#[test]
fn a_plan_lists_what_is_open_and_what_came_later() {
    let history = three_steps();
    let plan = at(&history, 4).unwrap();
    assert_eq!((open(&plan), plan.dropped()), (vec![1], 4));
    assert_eq!(plan.later.iter().map(|later| later.op.0).collect::<Vec<_>>(), [2]);
    assert_eq!((plan.requested_at(OpNumber(1)), plan.replay_from(), plan.continued()), (Some(2), 0, 0));
    assert_eq!((plan.rewrites(), plan.copied()), (&[0, 3][..], 0));
    assert_eq!(at(&history, 7).unwrap().copied(), 2);
    assert_eq!(open(&at(&history, 2).unwrap()), [0]);
    assert_eq!(at(&history, 1).unwrap().later.len(), 3);
}

#[test]
fn a_fork_outside_of_the_history_is_refused() {
    let history = three_steps();
    assert_eq!(at(&history, 0), Err(ForkRefusal::Nothing));
    assert_eq!(at(&history, 9), Err(ForkRefusal::NoSuchEvent { at: 9, events: 8 }));
    assert_eq!(at(&history, 8), Err(ForkRefusal::Ended(7)));
    let deleted: Vec<_> = history.into_iter().skip(1).collect();
    assert_eq!(at(&deleted, 6), Err(ForkRefusal::Deleted(6)));
    let mut gap = three_steps();
    gap.remove(1);
    assert_eq!(at(&gap, 6), Err(ForkRefusal::Deleted(6)));
    assert_eq!(at(&gap, 4), Err(ForkRefusal::Deleted(4)));
}

#[test]
fn the_copied_turns_name_their_origin_and_end_at_the_cut() {
    let history = three_steps();
    let plan = at(&history, 4).unwrap();
    let of = RunId::from_bits(7);
    let origin = plan.origin(of, None);
    assert_eq!((origin.of, origin.at, origin.seed), (of, 4, of));
    let copied = plan.rewrite(history[..2].to_vec(), &origin, &BTreeMap::new());
    let Event::RunStarted(start) = &copied[0].events[0] else { panic!("{copied:?}") };
    assert_eq!((&start.key, start.deadline, start.forked.as_deref()), (&None, None, Some(&origin)));
    assert_eq!(start.tags[FORKED_FROM], of.to_string());
    assert_eq!((start.tags["team"].as_str(), copied[0].id), ("red", history[0].id));
    assert_eq!((&copied[1].events[..], copied[1].id.is_continued()), (&[done(0)][..], true));
    assert_eq!(pending_fork(&copied), Some(&origin));
    // A fork of the fork has the seed of the first run.
    let second = at(&copied, 2).unwrap().origin(RunId::from_bits(8), None);
    assert_eq!((second.of, second.seed), (RunId::from_bits(8), of));
}

#[test]
fn an_output_cuts_where_the_outcome_was_recorded() {
    let history = three_steps();
    let plan = outputs(&history, &[0]).unwrap();
    assert_eq!((plan.at, open(&plan)), (3, vec![1]));
    let both = outputs(&history, &[1, 0]).unwrap();
    assert_eq!((both.at, open(&both)), (3, vec![]));
    assert_eq!(both.outputs.iter().map(|output| output.op.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(both.origin(RunId::from_bits(1), None).outputs, [0, 1]);
    let later = ForkRefusal::RequestedLater { op: OpNumber(2), first: OpNumber(0) };
    assert_eq!(outputs(&history, &[0, 2]), Err(later));
    assert_eq!(outputs(&history, &[5]), Err(ForkRefusal::NoSuchOperation(OpNumber(5))));
    // An operation that is open gets its outcome at the end.
    let running = turns(vec![vec![started(), step(0), step(1)], vec![done(0)]]);
    assert_eq!(outputs(&running, &[1]).unwrap().at, 4);
}

#[test]
fn a_recorded_value_is_kept_and_replaced() {
    let value = Event::ValueRecorded { op: OpNumber(0), name: "v".into(), value: Ok(Payload::null()) };
    let history = turns(vec![vec![started(), value, step(1)], vec![done(1)]]);
    let plan = outputs(&history, &[0]).unwrap();
    assert_eq!((plan.at, plan.origin(RunId::from_bits(1), None).outputs), (2, vec![]));
    let seven = Payload::json(&7).unwrap();
    let values = BTreeMap::from([(OpNumber(0), seven.clone())]);
    let copied = plan.rewrite(history[..1].to_vec(), &plan.origin(RunId::from_bits(1), None), &values);
    let expected = Event::ValueRecorded { op: OpNumber(0), name: "v".into(), value: Ok(seven) };
    assert_eq!(copied[0].events[1..], [expected]);
}

#[test]
fn a_payload_that_arrived_early_is_replaced_where_it_arrived() {
    let taken = Event::HookTaken { op: OpNumber(1), message: MessageId::from_bits(5) };
    let history = turns(vec![
        vec![started(), step(0)],
        vec![received(Judgement::Kept)],
        vec![done(0), opened(1), taken, step(2)],
    ]);
    assert_eq!(outputs(&history, &[1]).unwrap().at, 2);
    let history =
        turns(vec![vec![started(), opened(0), opened(1)], vec![received(Judgement::TakenBy(OpNumber(0)))]]);
    assert_eq!(outputs(&history, &[0]).unwrap().at, 3);
    assert_eq!(outputs(&history, &[1]).unwrap().at, 4);
    let reason = outputs(&history[..1], &[1]).unwrap_err();
    assert!(matches!(reason, ForkRefusal::NotReplaceable(OpNumber(1), _)), "{reason}");
}

#[test]
fn a_cut_between_an_end_and_its_retry_is_the_cut_point_of_the_retry() {
    let retried = RunRetried {
        from: 2,
        reopens: OpNumber(0),
        next_op: OpNumber(2),
        restarts: Vec::new(),
        renews: Vec::new(),
        adoptable: Vec::new(),
        deadline: None,
        message: MessageId::from_bits(1),
        reason: String::new(),
        actor: None,
    };
    let outcome = Event::StepFailed { op: OpNumber(0), failure: Failure::new(FailureKind::Error, "no") };
    let history = turns(vec![
        vec![started(), step(0)],
        vec![outcome, failed()],
        vec![Event::RunRetried(Box::new(retried))],
        vec![done(0), step(2)],
    ]);
    assert_eq!(at(&history, 4).unwrap().at, 2);
    assert_eq!(at(&history, 3).unwrap().at, 3);
    let after = at(&history, 5).unwrap();
    assert_eq!((after.at, open(&after)), (5, vec![0]));
    assert_eq!(open(&at(&history, 7).unwrap()), [2]);
}

#[test]
fn what_cannot_be_asked_for_again_names_the_event_before_it() {
    let failure = Failure::new(FailureKind::Error, "no");
    let history = turns(vec![
        vec![started(), step(9)],
        vec![done(9), Event::RunCompensating { ends_as: Status::Failed, failure, actor: None }, failed()],
    ]);
    assert_eq!(at(&history, 4), Err(ForkRefusal::Compensating(3)));
    assert!(at(&history, 3).is_ok());
    assert_eq!(at(&history, 2), Err(ForkRefusal::AtMostOnce(OpNumber(9), "s9".into())));
    assert!(ForkPlan::of(&history, ForkPoint::At(2), true).is_ok());
    assert!(outputs(&history, &[9]).is_ok(), "it is not attempted");
}
