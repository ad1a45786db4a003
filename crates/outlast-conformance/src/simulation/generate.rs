//! Random programs.

use std::cell::Cell;

use fastrand::Rng;
use outlast::prelude::*;

use super::exchange::{any_carried_token, any_exchange};
use super::orchestration::any_feature;
use super::program::{Ending, Job, Leaf, Program};
use super::values::PayloadType;

thread_local! {
    /// Whether the programs of the simulation on this thread have features that only some seeds draw.
    static HAS_FEATURES: Cell<bool> = const { Cell::new(false) };
    /// Whether they also have exchanges with other runs.
    static HAS_EXCHANGES: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether programs have features, and exchanges with other runs, that only some seeds draw.
pub(super) fn set_features(has_features: bool, has_exchanges: bool) {
    HAS_FEATURES.set(has_features);
    HAS_EXCHANGES.set(has_exchanges);
}

fn has_features() -> bool {
    HAS_FEATURES.get()
}

fn has_exchanges() -> bool {
    HAS_EXCHANGES.get()
}

/// A random program of at most this nesting depth.
pub(super) fn any_program(rng: &mut Rng, depth: u32) -> Program {
    if has_exchanges() && rng.u32(0..12) == 0 {
        return any_carried_token(rng, depth.saturating_sub(1));
    }
    let parts = (0..rng.usize(1..5)).map(|_| any_part(rng, depth)).collect();
    let continues = rng.bool();
    let guard = |part| if continues { Program::Try(Box::new(part)) } else { part };
    let parts: Vec<Program> = parts;
    let program = Program::Seq(parts.into_iter().map(guard).collect());
    let program = if rng.u32(0..8) == 0 { Program::Newer(Box::new(program)) } else { program };
    if depth == 0 || rng.u32(0..6) > 0 {
        return program;
    }
    // Most continue after a failure, too.
    let first = if rng.u32(0..4) > 0 { Program::Try(Box::new(program)) } else { program };
    Program::Continue(Box::new(first), Box::new(any_program(rng, depth - 1)))
}

/// A random part of a program.
pub(super) fn any_part(rng: &mut Rng, depth: u32) -> Program {
    if has_exchanges() && rng.u32(0..5) == 0 {
        return any_exchange(rng, depth);
    }
    if has_features() && rng.u32(0..4) == 0 {
        return any_feature(rng, depth);
    }
    if depth == 0 || rng.u32(0..3) == 0 {
        return any_simple(rng, depth);
    }
    let depth = depth - 1;
    let some = |rng: &mut Rng| (0..rng.usize(1..4)).map(|_| any_part(rng, depth)).collect::<Vec<_>>();
    let boxed = |rng: &mut Rng| Box::new(any_part(rng, depth));
    match rng.u32(0..21) {
        0 | 1 => Program::Seq(some(rng)),
        2 => Program::Join(some(rng)),
        3 => Program::Unordered(some(rng)),
        4 | 5 => Program::Race(some(rng)),
        6 => Program::RaceUnordered(some(rng)),
        7 => Program::DropAfter(any_leaf(rng, depth), boxed(rng)),
        8 => Program::AwaitAfter(any_leaf(rng, depth), boxed(rng)),
        9 if rng.bool() => Program::CleanUp(boxed(rng), Box::new(Program::Await(Leaf::Work(any_job(rng))))),
        9 => Program::CleanUp(boxed(rng), boxed(rng)),
        10 => Program::Parallel(some(rng), rng.usize(1..4)),
        11 => Program::Patch(rng.u8(0..2), boxed(rng), boxed(rng)),
        12 => Program::RandomChoice(some(rng)),
        13 => Program::Shield(boxed(rng)),
        14 | 15 => several_hooks(rng),
        16 | 17 => Program::CancelAfter(any_leaf(rng, depth), boxed(rng)),
        18 => Program::RaceOk(some(rng)),
        _ => Program::Try(boxed(rng)),
    }
}

/// Several open hooks of one name with different types.
fn several_hooks(rng: &mut Rng) -> Program {
    let name = rng.u8(0..2);
    let hooks = (0..rng.usize(2..4)).map(|_| {
        let timeout = rng.bool().then(|| any_millis(rng));
        Program::Await(Leaf::Hook { name, timeout, payload_type: any_wanted(rng) })
    });
    let hooks = hooks.collect();
    match rng.u32(0..4) {
        0 => Program::Join(hooks),
        1 => Program::Race(hooks),
        // Payloads that were taken earlier: another build may replay the run.
        2 => {
            let naps = (0..2).map(|_| Program::Await(Leaf::Sleep(any_millis(rng))));
            let taking = naps
                .flat_map(|nap| [Program::Take { name, count: 1, payload_type: PayloadType::Number }, nap]);
            Program::Seq(taking.collect())
        }
        // A hook that is dropped, perhaps with a payload, and others of the same name.
        _ => {
            let first = Leaf::Hook { name, timeout: None, payload_type: PayloadType::Number };
            let nap = Program::Await(Leaf::Sleep(any_millis(rng)));
            Program::Seq(vec![Program::DropAfter(first, Box::new(nap)), Program::Race(hooks)])
        }
    }
}

fn any_simple(rng: &mut Rng, depth: u32) -> Program {
    match rng.u32(0..26) {
        0 => Program::Forget(any_leaf(rng, depth)),
        1 => Program::Record(rng.u8(0..2)),
        2 => Program::Tag(rng.u8(0..2)),
        3 => Program::Fail,
        4 | 5 => Program::Take { name: rng.u8(0..2), count: rng.u8(1..4), payload_type: any_wanted(rng) },
        _ => Program::Await(any_leaf(rng, depth)),
    }
}

fn any_leaf(rng: &mut Rng, depth: u32) -> Leaf {
    match rng.u32(0..16) {
        0..=3 => Leaf::Work(any_job(rng)),
        4 => Leaf::Once(any_job(rng)),
        5 => Leaf::TimeLimited(any_job(rng)),
        6 => Leaf::Call(rng.u8(0..5)),
        7..=9 => Leaf::Sleep(any_millis(rng)),
        10..=12 => {
            let timeout = rng.bool().then(|| any_millis(rng));
            Leaf::Hook { name: rng.u8(0..2), timeout, payload_type: any_wanted(rng) }
        }
        13 | 14 if depth > 0 => Leaf::Child {
            program: Box::new(any_program(rng, depth - 1)),
            timeout: (rng.u32(0..3) == 0).then(|| any_millis(rng)),
            end: [ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon][rng.usize(0..3)],
            key: (rng.u32(0..4) == 0).then(|| rng.u8(0..3)),
            is_rare: rng.u32(0..4) == 0,
        },
        15 if depth > 0 => Leaf::Abandoned {
            program: Box::new(any_program(rng, depth - 1)),
            key: rng.bool().then(|| rng.u8(0..3)),
        },
        _ => Leaf::Call(rng.u8(0..5)),
    }
}

/// Mostly a number, so that random payloads often fit.
pub(super) fn any_wanted(rng: &mut Rng) -> PayloadType {
    if rng.bool() { PayloadType::Number } else { PayloadType::ALL[rng.usize(0..PayloadType::ALL.len())] }
}

pub(super) fn any_job(rng: &mut Rng) -> Job {
    let millis = if rng.bool() { rng.u64(0..50) } else { any_millis(rng) };
    let fails = if rng.bool() { 0 } else { rng.u32(0..5) };
    let ending = [Ending::Error, Ending::Error, Ending::Fatal, Ending::Panic][rng.usize(0..4)];
    let (stops_on_cancel, beats) = (rng.u32(0..3) == 0, rng.u32(0..3) == 0);
    Job { millis, fails, ending, stops_on_cancel, beats, is_shielded: false }
}

/// A duration: most are short.
pub(super) fn any_millis(rng: &mut Rng) -> u64 {
    match rng.u32(0..4) {
        0 => rng.u64(0..10),
        1 => rng.u64(0..300),
        2 => rng.u64(0..3_000),
        _ => rng.u64(0..15_000),
    }
}
