//! Events of compensations: examples, and random ones.

use super::*;
use crate::failure::FailedCompensation;
use crate::strategy::{EndPlan, EndStep, FailureStrategy};

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
            actor: None,
        },
        Event::RunCompensating {
            ends_as: Status::Cancelled,
            failure: Failure::cancelled("too late"),
            actor: None,
        },
        Event::RunCompensating {
            ends_as: Status::Cancelled,
            failure: Failure::terminated("enough"),
            actor: ada(),
        },
        Event::RunFailed { failure: failure.clone() },
        Event::RunCancelled { failure },
        retrying(1, Vec::new()),
        retrying(2, vec![EventPlace { turn: 4, event: 6 }]),
    ]);
    examples
}

fn retrying(attempt: u32, kept: Vec<EventPlace>) -> Event {
    let failure = Failure::new(FailureKind::Error, "sold out");
    Event::RunRetrying(Box::new(RunRetrying { failure, attempt, retry_at: moment(), kept }))
}

/// Starts that decide about the ends of their runs.
pub(super) fn ending_examples() -> Vec<Event> {
    let strategies = [
        FailureStrategy::Fail,
        FailureStrategy::Retry(Retry::WORKFLOW),
        FailureStrategy::Cascade,
        FailureStrategy::Quarantine,
    ];
    let policy = Policy { queue: Some("mail"), priority: Some(2), retry: Retry::api(), ..Policy::DEFAULT };
    let mut plans: Vec<_> =
        strategies.into_iter().map(|strategy| EndPlan { on_failure: Some(strategy), on_end: None }).collect();
    plans.push(EndPlan { on_failure: None, on_end: Some(EndStep::new("notify", Policy::DEFAULT)) });
    plans.push(EndPlan {
        on_failure: Some(FailureStrategy::Cascade),
        on_end: Some(EndStep::new("notify", policy)),
    });
    let start = |plan: EndPlan| RunStarted { ending: plan.into_option(), ..plain_start(2) };
    plans.into_iter().map(|plan| start(plan).into()).collect()
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
        Event::RunRetrying(_) => "run_retrying",
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
        Event::RunCompensating { .. } => (any_failure(), any_actor())
            .prop_map(|(failure, actor)| Event::RunCompensating { ends_as: Status::Failed, failure, actor })
            .boxed(),
        Event::RunRetrying(_) => (any_failure(), any::<u32>(), prop::collection::vec(any::<u32>(), 0..3))
            .prop_map(|(failure, attempt, kept)| {
                let place = |event: u32| EventPlace { turn: 1, event: event.into() };
                let (kept, retry_at) = (kept.into_iter().map(place).collect(), moment());
                Event::RunRetrying(Box::new(RunRetrying { failure, attempt, retry_at, kept }))
            })
            .boxed(),
        other => panic!("`{}` is drawn nowhere", other.kind()),
    }
}
