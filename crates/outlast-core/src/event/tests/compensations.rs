//! Events of compensations: examples, and random ones.

use super::*;
use crate::failure::FailedCompensation;

pub(super) fn compensation_examples() -> Vec<Event> {
    let registered = CompensationRegistered {
        op: OpNumber(4),
        step: "refund".into(),
        input: CompensationInput::Undo(OpNumber(3)),
        policy: None,
        queue: None,
        priority: None,
    };
    let value =
        |value| CompensationRegistered { input: CompensationInput::Value(value), ..registered.clone() };
    let policy = Policy { timeout: Some(Duration::from_secs(30)), retry: Retry::api(), ..Policy::DEFAULT };
    let queued = Queued { run: RunId::from_bits(9), queue: "money".into(), priority: 3 };
    let failed =
        FailedCompensation::new(4, "refund", &Failure::new(FailureKind::Fatal, "the bank is closed"));
    let failure = Failure::new(FailureKind::Error, "sold out").with_failed_compensations(vec![failed]);
    let mut examples: Vec<_> = [
        registered.clone(),
        value(Ok(plain(json!({"items": [1, 2]})))),
        value(Ok(Payload::coded("aes-1", vec![0, 255]))),
        value(Err(Failure::new(FailureKind::Limit, "too large"))),
        CompensationRegistered {
            policy: Some(Box::new(policy)),
            queue: Some("money \"1\"".into()),
            priority: Some(0),
            ..registered
        },
    ]
    .into_iter()
    .map(|registered| Event::CompensationRegistered(Box::new(registered)))
    .collect();
    let (op, of) = (OpNumber(7), OpNumber(4));
    examples.extend([
        Event::CompensationsKept { op, of: Vec::new() },
        Event::CompensationsKept { op, of: vec![OpNumber(2), of] },
        Event::CompensationStarted { op, of, queued: None },
        Event::CompensationStarted { op, of, queued: Some(Box::new(queued)) },
        Event::RunCompensating {
            ends_as: Status::Failed,
            failure: Failure::new(FailureKind::Error, "sold out"),
        },
        Event::RunCompensating { ends_as: Status::Cancelled, failure: Failure::cancelled("too late") },
        Event::RunFailed { failure: failure.clone() },
        Event::RunCancelled { failure },
    ]);
    examples
}

fn any_registered() -> BoxedStrategy<Event> {
    let op = || (0..=i64::MAX as u64).prop_map(OpNumber);
    let input = prop_oneof![
        op().prop_map(CompensationInput::Undo),
        any_payload().prop_map(|value| CompensationInput::Value(Ok(value))),
        any_failure().prop_map(|failure| CompensationInput::Value(Err(failure))),
    ];
    let queue = prop::option::of(any_text().prop_map(Arc::<str>::from));
    (op(), any_text(), input, prop::option::of(any_policy()), queue, prop::option::of(any::<u8>()))
        .prop_map(|(op, step, input, policy, queue, priority)| {
            let step = step.into();
            let registered = CompensationRegistered { op, step, input, policy, queue, priority };
            Event::CompensationRegistered(Box::new(registered))
        })
        .boxed()
}

/// The name of the golden file of an event of a compensation.
pub(super) fn file_name(event: &Event) -> &'static str {
    match event {
        Event::CompensationRegistered(_) => "compensation_registered",
        Event::CompensationsKept { .. } => "compensations_kept",
        Event::CompensationStarted { .. } => "compensation_started",
        Event::RunCompensating { .. } => "run_compensating",
        other => panic!("`{}` has no golden file", other.kind()),
    }
}

/// Any event of a compensation's kind.
pub(super) fn redrawn(example: &Event) -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    match example {
        Event::CompensationRegistered(_) => any_registered(),
        Event::CompensationsKept { .. } => (op.clone(), prop::collection::vec(op, 0..4))
            .prop_map(|(op, of)| Event::CompensationsKept { op, of })
            .boxed(),
        Event::CompensationStarted { .. } => (op.clone(), op, prop::option::of(any_queued()))
            .prop_map(|(op, of, queued)| Event::CompensationStarted { op, of, queued })
            .boxed(),
        Event::RunCompensating { .. } => any_failure()
            .prop_map(|failure| Event::RunCompensating { ends_as: Status::Failed, failure })
            .boxed(),
        other => panic!("`{}` is drawn nowhere", other.kind()),
    }
}
