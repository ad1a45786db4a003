//! The event of a retry: examples, and random ones.

use super::*;
use crate::forked::{ForkOrigin, RunForked};
use crate::retried::{AdoptableChild, RenewedWait, RestartedRun, RunRetried};

pub(super) fn retried_examples() -> Vec<Event> {
    let small = RunRetried {
        from: 7,
        reopens: OpNumber(3),
        next_op: OpNumber(5),
        restarts: Vec::new(),
        renews: Vec::new(),
        adoptable: Vec::new(),
        deadline: None,
        message: MessageId::from_bits(0x2a),
        reason: String::new(),
        actor: None,
    };
    let full = RunRetried {
        restarts: vec![RestartedRun { op: OpNumber(3), run: RunId::from_bits(9) }],
        renews: vec![RenewedWait { op: OpNumber(4), until: moment() }],
        adoptable: vec![AdoptableChild {
            op: OpNumber(6),
            run: RunId::from_bits(10),
            workflow: "ship".into(),
            key: "parcel-\"7\"".into(),
            digest: "00ff".into(),
        }],
        deadline: Some(moment()),
        reason: "the \"bank\" is open".into(),
        actor: Some("ada".into()),
        ..small.clone()
    };
    [small, full].map(|retried| Event::RunRetried(Box::new(retried))).into()
}

pub(super) fn forked_examples() -> Vec<Event> {
    let (of, next_op) = (RunId::from_bits(11), OpNumber(5));
    let small = RunForked { of, next_op, restarts: Vec::new(), renews: Vec::new() };
    let full = RunForked {
        restarts: vec![RestartedRun { op: OpNumber(3), run: RunId::from_bits(9) }],
        renews: vec![RenewedWait { op: OpNumber(4), until: moment() }],
        ..small.clone()
    };
    [small, full].map(|forked| Event::RunForked(Box::new(forked))).into()
}

/// The beginnings of forks.
pub(super) fn forked_starts() -> Vec<Event> {
    let of = RunId::from_bits(11);
    let small = ForkOrigin { of, at: 7, seed: of, outputs: Vec::new(), digest: None, actor: None };
    let full = ForkOrigin {
        seed: RunId::from_bits(10),
        outputs: vec![3, 4],
        digest: Some("0a".repeat(16)),
        actor: Some("ada".into()),
        ..small.clone()
    };
    let start = |origin| RunStarted { forked: Some(Box::new(origin)), ..generations::plain_start(2) };
    [small, full].map(start).map(Event::from).into()
}

pub(super) fn any_run_retried() -> impl Strategy<Value = Event> {
    let op = || (0..=i64::MAX as u64).prop_map(OpNumber);
    let at = || any::<i64>().prop_map(Timestamp::from_micros);
    let restarts = prop::collection::vec((op(), any_run()), 0..3);
    let renews = prop::collection::vec((op(), at()), 0..3);
    let words = (
        any_text(),
        prop::option::of(any_text()),
        any::<u64>().prop_map(|bits| MessageId::from_bits(bits.into())),
    );
    (0..=i64::MAX as u64, op(), op(), restarts, renews, prop::option::of(at()), words).prop_map(
        |(from, reopens, next_op, restarts, renews, deadline, (reason, actor, message))| {
            let restarts = restarts.into_iter().map(|(op, run)| RestartedRun { op, run }).collect();
            let renews = renews.into_iter().map(|(op, until)| RenewedWait { op, until }).collect();
            let retried = RunRetried {
                from,
                reopens,
                next_op,
                restarts,
                renews,
                adoptable: Vec::new(),
                deadline,
                message,
                reason,
                actor,
            };
            Event::RunRetried(Box::new(retried))
        },
    )
}

pub(super) fn any_run_forked() -> impl Strategy<Value = Event> {
    let op = || (0..=i64::MAX as u64).prop_map(OpNumber);
    let restarts = prop::collection::vec((op(), any_run()), 0..3);
    let renews = prop::collection::vec((op(), any::<i64>()), 0..3);
    (any_run(), op(), restarts, renews).prop_map(|(of, next_op, restarts, renews)| {
        let restarts = restarts.into_iter().map(|(op, run)| RestartedRun { op, run }).collect();
        let renewed = |(op, at)| RenewedWait { op, until: Timestamp::from_micros(at) };
        let renews = renews.into_iter().map(renewed).collect();
        Event::RunForked(Box::new(RunForked { of, next_op, restarts, renews }))
    })
}
