//! Starts, and the cuts by `continue_as`.

use super::*;
use crate::cut::{CarriedChild, EventPlace};

pub(super) fn plain_start(rules: u32) -> RunStarted {
    RunStarted {
        workflow: "checkout".into(),
        version: 1,
        rules,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        deadline: None,
        policy: None,
        requester: None,
        ending: None,
        forked: None,
    }
}

/// Cuts by `continue_as`.
pub(super) fn generation_examples() -> Vec<Event> {
    let full = RunStarted {
        version: 2,
        queue: "gpu".into(),
        priority: 3,
        key: Some("order-42".into()),
        input: plain(json!({"done": 100})),
        headers: Headers::from([("user".into(), "ada".into())]),
        tags: Tags::from([("tier".into(), "gold".into())]),
        parent: Some(Parent {
            run: RunId::from_bits(7),
            op: OpNumber(2),
            root: RunId::from_bits(5),
            awaits: true,
        }),
        deadline: Some(moment()),
        ..plain_start(2)
    };
    let child = |op, on_parent_end, is_shielded| CarriedChild {
        op: OpNumber(op),
        run: RunId::from_bits(op.into()),
        workflow: "ship".into(),
        on_parent_end,
        is_shielded,
    };
    let continued = |generation, next_op, started, children, kept| {
        let (skips_from, next_op) = (0, OpNumber(next_op));
        let continued = RunContinued {
            skips_from,
            generation,
            next_op,
            started,
            children,
            kept,
            failed_tries: u32::from(generation == 3),
            previous: (1..generation - 1).collect(),
            tokens: Vec::new(),
        };
        Event::RunContinued(Box::new(continued))
    };
    let children = vec![child(3, ParentEnd::Cancel, false), child(5, ParentEnd::Wait, true)];
    let kept = vec![EventPlace { turn: 4, event: 6 }, EventPlace { turn: 9, event: 9 }];
    vec![
        continued(2, 1, plain_start(2), vec![], vec![]),
        continued(3, 70, full, children, kept),
        continued(
            2,
            0,
            RunStarted { input: Payload::coded("aes-1", vec![7]), ..plain_start(1) },
            vec![],
            vec![],
        ),
    ]
}

pub(super) fn any_run_continued() -> impl Strategy<Value = Event> {
    let numbers = (0..u64::from(u32::MAX), 0..u64::from(u32::MAX), 0..u64::from(u32::MAX));
    let ends = prop::sample::select(vec![ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon]);
    let child = (any::<u32>(), any_run(), any_text(), ends, any::<bool>());
    let child = child.prop_map(|(op, run, workflow, on_parent_end, is_shielded)| {
        let (op, workflow) = (OpNumber(op.into()), workflow.into());
        CarriedChild { op, run, workflow, on_parent_end, is_shielded }
    });
    let place = (any::<u32>(), any::<u32>())
        .prop_map(|(turn, event)| EventPlace { turn: turn.into(), event: event.into() });
    let lists = (prop::collection::vec(child, 0..3), prop::collection::vec(place, 0..3));
    (any_run_started(), numbers, lists).prop_map(|(started, numbers, (children, kept))| {
        let Event::RunStarted(started) = started else { unreachable!("it is a start") };
        let (skips_from, generation, next_op) = numbers;
        let next_op = OpNumber(next_op);
        Event::RunContinued(Box::new(RunContinued {
            skips_from,
            generation,
            next_op,
            started: *started,
            children,
            kept,
            failed_tries: 0,
            previous: Vec::new(),
            tokens: Vec::new(),
        }))
    })
}
