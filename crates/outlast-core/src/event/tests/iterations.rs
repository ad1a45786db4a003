//! Events of loops: examples, and random ones.

use super::*;
use crate::cut::{CarriedChild, EventPlace};
use crate::iteration::{IterationCut, IterationEnded, SkippedRange};

pub(super) fn iteration_examples() -> Vec<Event> {
    let skip = |after, after_turn, until, until_turn| SkippedRange {
        after: OpNumber(after),
        after_turn,
        until: OpNumber(until),
        until_turn,
    };
    let child = CarriedChild {
        op: OpNumber(3),
        run: RunId::from_bits(3),
        workflow: "ship".into(),
        on_parent_end: ParentEnd::Wait,
        is_shielded: false,
    };
    let small = IterationCut { begin: 0, skips: vec![skip(0, 1, 5, 4)], ..IterationCut::default() };
    let full = IterationCut {
        begin: 9,
        skips: vec![skip(4, 9, 60, 70), skip(61, 70, 90, 99)],
        tags: Tags::from([("tier".into(), "gold".into())]),
        patches: vec!["faster".into()],
        children: vec![child],
        kept: vec![EventPlace { turn: 9, event: 12 }],
    };
    let ended = |op, iteration, state, cut| {
        Event::IterationEnded(Box::new(IterationEnded {
            op: OpNumber(op),
            of: OpNumber(0),
            iteration,
            state,
            cut,
        }))
    };
    vec![
        Event::LoopStarted { op: OpNumber(0), name: "import".into() },
        ended(5, 1, Ok(plain(json!({"page": 2}))), Some(small)),
        ended(90, 40, Ok(Payload::coded("aes-1", vec![7])), Some(full)),
        ended(7, 2, Ok(Payload::null()), None),
        ended(7, 2, Err(Failure::new(FailureKind::Limit, "too large")), None),
    ]
}

pub(super) fn file_name(event: &Event) -> &'static str {
    match event {
        Event::LoopStarted { .. } => "loop_started",
        Event::IterationEnded(_) => "iteration_ended",
        other => compensations::file_name(other),
    }
}

pub(super) fn redrawn(example: &Event) -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    match example.clone() {
        Event::LoopStarted { .. } => {
            (op, any_text()).prop_map(|(op, name)| Event::LoopStarted { op, name: name.into() }).boxed()
        }
        Event::IterationEnded(ended) => (op.clone(), op, any::<u32>(), any_payload())
            .prop_map(move |(op, of, iteration, state)| {
                let (iteration, cut) = (iteration.into(), ended.cut.clone());
                Event::IterationEnded(Box::new(IterationEnded { op, of, iteration, state: Ok(state), cut }))
            })
            .boxed(),
        other => compensations::redrawn(&other),
    }
}
