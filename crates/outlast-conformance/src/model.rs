//! Random calls to a world, compared with a model of it.
//!
//! The [conformance suite](mod@crate::suite) proves one rule at a time; this finds the rules that
//! break each other. The model is a list of runs and a list of sessions, and looks at all of them for
//! every answer: too slow for anything else, and too plain to be wrong in the same way as a world.

mod drive;
mod inbox;
mod make;
mod op;
mod outboxes;
mod runs;
mod work;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::suite::{Case, WorldUnderTest, block_on};
use op::Op;
use outlast_testkit::TestClock;

/// How many shorter sequences are tried to explain a failure.
const SHRINKS_MAX: usize = 2_000;

/// Calls a world at random, `operations` times for each seed, and compares every answer and every run
/// with the model. One line in a world's test file:
///
/// ```ignore
/// #[test]
/// fn the_world_is_like_the_model() {
///     outlast_conformance::model::check_world(open, 0..200, 60);
/// }
/// ```
///
/// # Panics
///
/// When an answer differs: with the seed, the shortest sequence found that still fails, and the
/// difference.
pub fn check_world<S, O>(open: impl Fn(TestClock) -> O, seeds: std::ops::Range<u64>, operations: usize)
where
    S: WorldUnderTest + 'static,
    O: Future<Output = S>,
{
    let attempt = |ops: &[Op]| attempt(&open, ops);
    for seed in seeds {
        let mut chance = fastrand::Rng::with_seed(seed);
        let ops: Vec<Op> = (0..operations).map(|_| Op::random(&mut chance)).collect();
        if let Err(first) = attempt(&ops) {
            let (ops, difference) = shrink(ops, first, attempt);
            panic!("seed {seed}: the world differs from the model after\n{}\n{difference}", listed(&ops));
        }
    }
}

/// Applies the operations to a fresh world; says how it differs from the model.
fn attempt<S, O>(open: &impl Fn(TestClock) -> O, ops: &[Op]) -> Result<(), String>
where
    S: WorldUnderTest + 'static,
    O: Future<Output = S>,
{
    let run = AssertUnwindSafe(|| {
        block_on(async {
            let clock = TestClock::new();
            let subject = Box::new(open(clock.clone()).await);
            drive::drive(&Case::new(subject, clock), ops).await
        })
    });
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    })
}

/// Leaves out operations, many at first and then one by one, as long as what is left still fails.
fn shrink(
    mut ops: Vec<Op>,
    mut difference: String,
    attempt: impl Fn(&[Op]) -> Result<(), String>,
) -> (Vec<Op>, String) {
    let (mut tries, mut size) = (0, ops.len() / 2);
    while size > 0 {
        let mut begin = 0;
        let before = ops.len();
        while begin < ops.len() && tries < SHRINKS_MAX {
            let mut fewer = ops.clone();
            fewer.drain(begin..(begin + size).min(ops.len()));
            tries += 1;
            match attempt(&fewer) {
                Err(error) => (ops, difference) = (fewer, error),
                Ok(()) => begin += size,
            }
        }
        // At the finest grain go round again until nothing more can go.
        size = if size == 1 && ops.len() < before { 1 } else { size / 2 };
    }
    (ops, difference)
}

fn listed(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("  {op:?}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_sequence_is_shrunk_to_what_makes_it_fail() {
        let mut chance = fastrand::Rng::with_seed(7);
        let mut ops: Vec<Op> = (0..40).map(|_| Op::Advance { micros: chance.u64(1..9) }).collect();
        ops.insert(5, Op::Leave { session: 1 });
        ops.insert(30, Op::Leave { session: 2 });
        let fails = |ops: &[Op]| {
            let leaves = ops.iter().filter(|op| matches!(op, Op::Leave { .. })).count();
            if leaves == 2 { Err("two leaves".into()) } else { Ok(()) }
        };
        let (ops, difference) = shrink(ops, String::new(), fails);
        assert_eq!((ops.len(), &*difference), (2, "two leaves"));
    }
}
