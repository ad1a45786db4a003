//! Random calls to a world, compared with a naive model.
//!
//! The [conformance suite](mod@crate::suite) tests one rule at a time; random calls test combinations of rules.
//! The model is a list of runs and a list of sessions, and scans both for every answer. It is slow, but so simple that
//! it hardly has the same bugs as a world.

mod execute;
mod inbox;
mod op;
mod outboxes;
mod runs;
mod values;
mod work;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};

use outlast_testkit::TestClock;

use crate::suite::{Case, WorldUnderTest, block_on};
use op::Op;

/// The number of shorter sequences that are tried to shrink a failure.
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
        let mut rng = fastrand::Rng::with_seed(seed);
        let ops: Vec<Op> = (0..operations).map(|_| Op::random(&mut rng)).collect();
        if let Err(first) = attempt(&ops) {
            let (ops, difference) = shrink(ops, first, attempt);
            panic!("seed {seed}: the world differs from the model after\n{}\n{difference}", list_ops(&ops));
        }
    }
}

/// Applies the operations to a fresh world. Fails when it differs from the model.
fn attempt<S, O>(open: &impl Fn(TestClock) -> O, ops: &[Op]) -> Result<(), String>
where
    S: WorldUnderTest + 'static,
    O: Future<Output = S>,
{
    let run = AssertUnwindSafe(|| {
        block_on(async {
            let clock = TestClock::new();
            let under_test = Box::new(open(clock.clone()).await);
            execute::execute(&Case::new(under_test, clock), ops).await
        })
    });
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    })
}

/// Removes operations, many at first and then one by one, as long as the rest still fails.
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
        // Repeat single removals until none succeeds.
        size = if size == 1 && ops.len() < before { 1 } else { size / 2 };
    }
    (ops, difference)
}

fn list_ops(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("  {op:?}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_sequence_is_shrunk_to_what_makes_it_fail() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut ops: Vec<Op> = (0..40).map(|_| Op::Advance { micros: rng.u64(1..9) }).collect();
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
