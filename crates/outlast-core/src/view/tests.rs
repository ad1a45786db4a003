//! Operations as text, one per line: number, kind, name, status, and what is known of it.

use expect_test::{Expect, expect};

use super::*;
use crate::event::ChildStarted;
use crate::failure::FailureKind;
use crate::id::{MessageId, TurnId};
use crate::message::Headers;
use crate::run::ParentEnd;

const PAUSE: i64 = 10;

/// Reads a history with one event per turn, a second apart.
fn check(events: Vec<Event>, expected: Expect) {
    let mut lines = String::new();
    for view in operations(&turns(events)) {
        lines.push_str(&line(&view));
        lines.push('\n');
    }
    expected.assert_eq(&lines);
}

fn turns(events: Vec<Event>) -> Vec<TurnRecord> {
    let turn = |(number, event)| TurnRecord {
        id: TurnId::from_bits(number as u128),
        seq: number as u64,
        at: second(number as i64),
        build: "".into(),
        events: vec![event],
    };
    events.into_iter().enumerate().map(turn).collect()
}

fn line(view: &OperationView) -> String {
    let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
    let mut line =
        format!("{} {} {} {} from {}", view.op, view.kind, view.name, view.status, seconds(view.started_at));
    if let Some(at) = view.ended_at {
        line.push_str(&format!(" to {}", seconds(at)));
    }
    if view.attempt_count > 0 {
        line.push_str(&format!(" attempts {}", view.attempt_count));
    }
    for (what, at) in [("retry", view.retry_at), ("until", view.until)] {
        line.extend(at.map(|at| format!(" {what} {}", seconds(at))));
    }
    line.extend(view.input.as_ref().map(|input| format!(" in {input:?}")));
    line.extend(view.output.as_ref().map(|output| format!(" out {output:?}")));
    line.extend(view.failure.as_ref().map(|failure| format!(" failure {:?}", failure.message)));
    line.extend(view.rejected.iter().map(|Rejection { message, at, reason }| {
        format!(" rejected {} at {}: {reason}", message.bits(), seconds(*at))
    }));
    line.extend(view.child.map(|run| format!(" run {}", run.bits())));
    line
}

fn second(number: i64) -> Timestamp {
    Timestamp::from_micros(number * 1_000_000)
}

fn payload(value: u32) -> Payload {
    Payload::from_json_text(value.to_string())
}

fn failure(message: &str, attempts: u32) -> Failure {
    Failure { attempts, ..Failure::new(FailureKind::Error, message) }
}

fn step(op: u64) -> Event {
    Event::StepStarted {
        op: OpNumber(op),
        name: "charge".into(),
        input: payload(42),
        queued: None,
        is_once: false,
        is_transactional: false,
    }
}

fn retried(op: u64, attempt: u32) -> Event {
    Event::StepRetried {
        op: OpNumber(op),
        attempt,
        failure: failure("busy", 0),
        retry_at: second(PAUSE * i64::from(attempt)),
        details: None,
    }
}

fn timer(op: u64) -> Event {
    Event::TimerStarted { op: OpNumber(op), fire_at: second(60) }
}

fn hook(op: u64, timeout: Option<i64>) -> Event {
    Event::HookOpened { op: OpNumber(op), name: "x".into(), timeout_at: timeout.map(second), of: None }
}

fn received(value: u32) -> Event {
    judged(value, Judgement::Kept)
}

/// A payload that arrived with a message of the same number.
fn judged(value: u32, judgement: Judgement) -> Event {
    let message = MessageId::from_bits(value.into());
    let (payload, headers, at) = (payload(value), Headers::new(), None);
    Event::HookReceived { name: "x".into(), message, payload, headers, at, judgement, to: Default::default() }
}

fn child(op: u64, on_parent_end: ParentEnd, key: Option<&str>) -> Event {
    Event::ChildStarted(Box::new(ChildStarted {
        op: OpNumber(op),
        run: RunId::from_bits(7),
        workflow: "ship".into(),
        version: 1,
        queue: "default".into(),
        priority: 0,
        key: key.map(Into::into),
        input: payload(1),
        timeout_at: Some(second(90)),
        on_parent_end,
        is_detached: on_parent_end == ParentEnd::Abandon,
    }))
}

fn cancel(pauses: &[u64]) -> Event {
    let pauses = numbers(pauses);
    let (ends, maybe_attempted) = (Vec::new(), Vec::new());
    Event::CancelRequested {
        message: None,
        reason: "enough".into(),
        actor: None,
        pauses,
        ends,
        maybe_attempted,
    }
}

/// A cancel of a run with rules 2.
fn cancel_of(ends: &[u64], maybe_attempted: &[u64]) -> Event {
    let (ends, maybe_attempted) = (numbers(ends), numbers(maybe_attempted));
    Event::CancelRequested {
        message: None,
        reason: "enough".into(),
        actor: None,
        pauses: Vec::new(),
        ends,
        maybe_attempted,
    }
}

fn numbers(ops: &[u64]) -> Vec<OpNumber> {
    ops.iter().map(|op| OpNumber(*op)).collect()
}

fn started(rules: u32) -> Event {
    Event::from(crate::event::RunStarted {
        workflow: "order".into(),
        version: 1,
        rules,
        queue: crate::queue::default_queue(),
        priority: 0,
        key: None,
        input: payload(1),
        headers: Default::default(),
        tags: Tags::new(),
        parent: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
        forked: None,
    })
}

#[test]
fn a_cancel_with_rules_2_ends_what_it_records_and_nothing_else() {
    check(
        vec![
            started(2),
            step(0),
            step(1),
            retried(1, 1),
            step(2),
            step(3),
            timer(4),
            hook(5, None),
            cancel_of(&[1, 2, 3, 4], &[3]),
            Event::StepCompleted { op: OpNumber(0), output: payload(7) },
            judged(9, Judgement::TakenBy(OpNumber(5))),
        ],
        expect![[r#"
            0 step charge completed from 1 to 9 attempts 1 in 42 out 7
            1 step charge cancelled from 2 to 8 attempts 1 in 42 failure "cancelled: enough"
            2 step charge cancelled from 4 to 8 in 42 failure "cancelled: enough"
            3 step charge cancelled from 5 to 8 attempts 1 in 42 failure "cancelled: enough; a worker that was lost may have attempted the step before"
            4 timer 54s cancelled from 6 to 8 until 60 failure "cancelled: enough"
            5 hook x completed from 7 to 10 out 9
        "#]],
    );
}

#[test]
fn a_step_counts_its_attempts() {
    check(
        vec![
            step(0),
            step(1),
            step(2),
            step(3),
            retried(0, 1),
            retried(1, 1),
            retried(1, 2),
            retried(2, 1),
            Event::StepCompleted { op: OpNumber(1), output: payload(7) },
            Event::StepFailed { op: OpNumber(2), failure: failure("no", 2) },
            step(4),
            Event::StepDropped { op: OpNumber(4) },
        ],
        expect![[r#"
            0 step charge open from 0 attempts 1 retry 10 in 42 failure "busy"
            1 step charge completed from 1 to 8 attempts 3 in 42 out 7
            2 step charge failed from 2 to 9 attempts 2 in 42 failure "no"
            3 step charge open from 3 attempts 1 in 42
            4 step charge dropped from 10 to 11 attempts 1 in 42
        "#]],
    );
}

#[test]
fn timers_fire_are_woken_or_dropped() {
    check(
        vec![
            timer(0),
            timer(1),
            timer(2),
            timer(3),
            Event::TimerFired { op: OpNumber(0) },
            Event::TimerWoken {
                message: MessageId::from_bits(1),
                ops: vec![OpNumber(1), OpNumber(2)],
                actor: None,
            },
            Event::TimerCancelled { op: OpNumber(2) },
        ],
        expect![[r#"
            0 timer 1m completed from 0 to 4 until 60
            1 timer 59s completed from 1 to 5 until 60
            2 timer 58s dropped from 2 to 6 until 60
            3 timer 57s open from 3 until 60
        "#]],
    );
}

#[test]
fn payloads_go_to_the_oldest_open_hook_and_back_when_it_is_dropped() {
    check(
        vec![
            received(1),
            received(2),
            hook(0, None),
            hook(1, Some(5)),
            hook(2, Some(5)),
            hook(3, None),
            Event::TimerFired { op: OpNumber(2) },
            Event::HookClosed { op: OpNumber(0) },
            received(3),
            hook(4, None),
            hook(5, None),
            Event::HookClosed { op: OpNumber(5) },
        ],
        expect![[r#"
            0 hook x dropped from 2 to 7
            1 hook x completed from 3 to 3 until 5 out 2
            2 hook x failed from 4 to 6 until 5 failure "no payload arrived for hook `x` in time"
            3 hook x completed from 5 to 7 out 1
            4 hook x completed from 9 to 9 out 3
            5 hook x dropped from 10 to 11
        "#]],
    );
}

#[test]
fn the_first_outcome_of_a_child_counts() {
    let op = OpNumber;
    check(
        vec![
            child(0, ParentEnd::Cancel, None),
            child(1, ParentEnd::Wait, None),
            child(2, ParentEnd::Abandon, None),
            child(3, ParentEnd::Abandon, Some("ship-1")),
            child(4, ParentEnd::Cancel, None),
            child(5, ParentEnd::Cancel, None),
            Event::ChildCompleted { op: op(0), output: payload(7) },
            Event::TimerFired { op: op(1) },
            Event::ChildCancelled { op: op(1), failure: failure("late", 0) },
            Event::ChildDetached { op: op(3), run: RunId::from_bits(9) },
            Event::ChildCancelled { op: op(4), failure: failure("told to stop", 0) },
            Event::ChildDropped { op: op(5) },
            Event::ChildCompleted { op: op(5), output: payload(8) },
        ],
        expect![[r#"
            0 child ship completed from 0 to 6 until 90 in 1 out 7 run 7
            1 child ship failed from 1 to 7 until 90 in 1 failure "child `ship` did not end in time; it was told to stop" run 7
            2 child ship abandoned from 2 until 90 in 1 run 7
            3 child ship abandoned from 3 until 90 in 1 run 9
            4 child ship cancelled from 4 to 10 until 90 in 1 failure "told to stop" run 7
            5 child ship dropped from 5 to 11 until 90 in 1 run 7
        "#]],
    );
}

#[test]
fn a_cancel_ends_waits_and_pauses_once() {
    check(
        vec![
            step(0),
            step(1),
            retried(1, 1),
            timer(2),
            hook(3, None),
            cancel(&[1]),
            timer(4),
            cancel(&[]),
            Event::StepCompleted { op: OpNumber(0), output: payload(1) },
        ],
        expect![[r#"
            0 step charge completed from 0 to 8 attempts 1 in 42 out 1
            1 step charge cancelled from 1 to 5 attempts 1 in 42 failure "cancelled: enough"
            2 timer 57s cancelled from 3 to 5 until 60 failure "cancelled: enough"
            3 hook x cancelled from 4 to 5 failure "cancelled: enough"
            4 timer 54s open from 6 until 60
        "#]],
    );
}

#[test]
fn what_is_open_when_the_run_ends_is_dropped() {
    let value = |op, value| Event::ValueRecorded { op: OpNumber(op), name: "rate".into(), value };
    check(
        vec![
            value(0, Ok(payload(3))),
            value(1, Err(failure("too long", 0))),
            Event::TagsSet { op: OpNumber(2), tags: [("a".into(), "b".into())].into() },
            step(3),
            Event::RunTerminated { failure: failure("terminated", 0), actor: None },
        ],
        expect![[r#"
            0 value rate completed from 0 to 0 out 3
            1 value rate failed from 1 to 1 failure "too long"
            2 tags  completed from 2 to 2
            3 step charge dropped from 3 to 4 attempts 1 in 42
        "#]],
    );
}

#[test]
fn payloads_are_read_as_values() {
    let done = Event::StepCompleted { op: OpNumber(0), output: payload(7) };
    let views = operations(&turns(vec![step(0), done]));
    assert_eq!(views[0].input_as::<u32>(), Ok(Some(42)));
    assert_eq!(views[0].output_as::<u32>(), Ok(Some(7)));
    assert!(views[0].output_as::<String>().is_err());
    let views = operations(&turns(vec![timer(0)]));
    assert_eq!(views[0].output_as::<u32>(), Ok(None));
}

#[test]
fn since_rules_2_the_events_say_which_hook_took_a_payload() {
    check(
        vec![
            started(2),
            hook(0, None),
            hook(1, None),
            judged(5, Judgement::TakenBy(OpNumber(1))),
            Event::HookClosed { op: OpNumber(1) },
            Event::HookTaken { op: OpNumber(0), message: MessageId::from_bits(5) },
            received(6),
            hook(2, None),
        ],
        expect![[r#"
            0 hook x completed from 1 to 5 out 5
            1 hook x dropped from 2 to 4
            2 hook x open from 7
        "#]],
    );
}

#[test]
fn a_rejected_payload_is_listed_with_the_oldest_hook_and_leaves_it_open() {
    let rejected = |value: u32| Event::HookRejected {
        name: "x".into(),
        message: MessageId::from_bits(value.into()),
        reason: "not a text".into(),
    };
    check(
        vec![
            started(2),
            received(4),
            received(5),
            hook(0, Some(90)),
            rejected(4),
            Event::HookTaken { op: OpNumber(0), message: MessageId::from_bits(5) },
            hook(1, Some(90)),
            hook(2, None),
            judged(6, Judgement::Rejected("no number".into())),
        ],
        expect![[r#"
            0 hook x completed from 3 to 5 until 90 out 5 rejected 4 at 4: not a text
            1 hook x open from 6 until 90 rejected 6 at 8: no number
            2 hook x open from 7
        "#]],
    );
}

/// The attempts of one step: number, due time, end, failure, and the build that recorded it.
fn check_attempts(events: Vec<Event>, expected: Expect) {
    let mut history = turns(events);
    for turn in &mut history {
        turn.build = if turn.seq < 3 { "v1".into() } else { "v2".into() };
    }
    let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
    let mut lines = String::new();
    for attempt in &operations(&history)[0].attempts {
        lines.push_str(&format!("{} due {}", attempt.number, seconds(attempt.due_at)));
        lines.extend(attempt.ended_at.map(|at| format!(" to {}", seconds(at))));
        lines.extend(attempt.failure.as_ref().map(|failure| format!(" {:?}", failure.message)));
        lines.extend(attempt.build.as_ref().map(|build| format!(" by {build}")));
        lines.push('\n');
    }
    expected.assert_eq(&lines);
}

#[test]
fn every_attempt_has_its_due_time_its_end_and_its_failure() {
    let failed = Event::StepFailed { op: OpNumber(0), failure: failure("no", 3) };
    check_attempts(
        vec![started(2), step(0), retried(0, 1), retried(0, 2), failed],
        expect![[r#"
            1 due 1 to 2 "busy" by v1
            2 due 10 to 3 "busy" by v2
            3 due 20 to 4 "no" by v2
        "#]],
    );
    check_attempts(
        vec![
            started(2),
            step(0),
            retried(0, 1),
            Event::StepCompleted { op: OpNumber(0), output: payload(7) },
        ],
        expect![[r#"
            1 due 1 to 2 "busy" by v1
            2 due 10 to 3 by v2
        "#]],
    );
}

#[test]
fn the_next_attempt_of_an_open_step_is_listed_before_it_begins() {
    check_attempts(
        vec![started(2), step(0), retried(0, 1)],
        expect![[r#"
            1 due 1 to 2 "busy" by v1
            2 due 10
        "#]],
    );
}

#[test]
fn an_attempt_that_never_began_is_not_listed() {
    check_attempts(
        vec![started(2), step(0), retried(0, 1), cancel_of(&[0], &[])],
        expect![[r#"
            1 due 1 to 2 "busy" by v1
        "#]],
    );
    check_attempts(vec![started(2), step(0), cancel_of(&[0], &[])], expect![[""]]);
    check_attempts(
        vec![started(2), step(0), retried(0, 1), Event::StepDropped { op: OpNumber(0) }],
        expect![[r#"
            1 due 1 to 2 "busy" by v1
        "#]],
    );
}

#[test]
fn an_attempt_without_a_recorded_outcome_ends_with_its_step() {
    check_attempts(
        vec![started(2), step(0), cancel_of(&[0], &[0])],
        expect![[r#"
            1 due 1 to 2 "cancelled: enough; a worker that was lost may have attempted the step before"
        "#]],
    );
    check_attempts(
        vec![started(2), step(0), Event::RunTerminated { failure: failure("terminated", 0), actor: None }],
        expect![[r#"
            1 due 1 to 2
        "#]],
    );
}
