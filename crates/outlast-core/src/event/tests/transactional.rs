//! Events of steps that are requested, transactional ones included: examples, and random ones.

use super::*;

pub(super) fn step_started(op: OpNumber, name: &str, input: Payload, queued: Option<Box<Queued>>) -> Event {
    Event::StepStarted { op, name: name.into(), input, queued, is_once: false, is_transactional: false }
}

pub(super) fn transactional_examples() -> Vec<Event> {
    let queued = Queued { run: RunId::from_bits(9), queue: "money".into(), priority: 3 };
    let started = |input, queued| Event::StepStarted {
        op: OpNumber(3),
        name: "debit".into(),
        input,
        queued,
        is_once: false,
        is_transactional: true,
    };
    vec![
        started(plain(json!({"cents": 7})), None),
        started(Payload::coded("zip", vec![1, 2, 3]), Some(Box::new(queued))),
    ]
}

pub(super) fn any_step_started() -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    let name = any_text().prop_map(Arc::<str>::from);
    (op, name, any_payload(), prop::option::of(any_queued()), any::<(bool, bool)>())
        .prop_map(|(op, name, input, queued, (is_once, is_transactional))| Event::StepStarted {
            op,
            name,
            input,
            queued,
            is_once,
            is_transactional,
        })
        .boxed()
}
