//! The conformance suite: the contract of worlds, one case per rule.
//!
//! A world's own test file opens it and calls [`conformance!`](crate::suite!):
//!
//! ```text
//! outlast_conformance::suite!(open);
//!
//! async fn open(clock: TestClock) -> MySubject { … }
//! ```
//!
//! A case is a function of a [`Case`]. Its name is the rule that it tests.

#![allow(clippy::unwrap_used, reason = "a case fails by panicking")]

mod case;
mod cases;
mod test_worker;
pub(crate) mod turn_ext;
mod world_under_test;

pub mod cancels;
pub mod changed;
pub mod children;
pub mod claim;
pub mod commit;
pub mod counts;
pub mod deadlines;
pub mod delays;
pub mod delete;
pub mod endable_without_code;
pub mod ended;
pub mod failures;
pub mod fencing;
pub mod flags;
pub mod forked;
pub mod formats;
pub mod generations;
pub mod heartbeats;
pub mod history;
pub mod inbox;
pub mod kept_payloads;
pub mod keys;
pub mod lists;
pub mod mixed_rules;
pub mod operation_numbers;
pub mod outbox;
pub mod paused;
pub mod payloads;
pub mod poison;
pub mod preference;
pub mod priorities;
pub mod prune;
pub mod queue_counts;
pub mod queues;
pub mod records;
pub mod reopened;
pub mod reports;
pub mod rows;
pub mod runs_by_id;
pub mod sessions;
pub mod starts;
pub mod streams;
pub mod stuck;
pub mod tags;
pub mod takeover;
pub mod terminate;
pub mod time;
pub mod tokens;
pub mod waits;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

pub use case::Case;
pub(crate) use case::one;
pub use test_worker::TestWorker;
pub use world_under_test::WorldUnderTest;

use outlast_testkit::TestClock;
use outlast_testkit::watchdog::{TIMEOUT_SECONDS, WatchedWait};

/// Runs one case against a fresh world, on a runtime of its own.
///
/// # Panics
///
/// When the world breaks the rule.
pub fn check<S, O, C>(open: impl FnOnce(TestClock) -> O, case: impl FnOnce(Case) -> C)
where
    S: WorldUnderTest + 'static,
    O: Future<Output = S>,
    C: Future<Output = ()>,
{
    block_on(async {
        let clock = TestClock::new();
        let under_test = Box::new(open(clock.clone()).await);
        with_timeout(case(Case::new(under_test, clock))).await;
    });
}

/// Awaits the future; panics when it takes longer than any case should.
async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    let (mut future, watched) = (pin!(future), WatchedWait::begin());
    poll_fn(|cx| {
        let poll = future.as_mut().poll(cx);
        let hangs = poll.is_pending() && watched.is_overdue(cx.waker());
        assert!(!hangs, "the case has waited for {TIMEOUT_SECONDS} s");
        poll
    })
    .await
}

/// Runs a future on a runtime of its own, in this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime for one thread starts").block_on(future)
}

/// Awaits all futures concurrently; returns their outputs in order.
pub(crate) async fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<(Pin<Box<_>>, Option<T>)> =
        futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, answer) in futures.iter_mut().filter(|(_, answer)| answer.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(cx) {
                *answer = Some(ready);
            }
        }
        let is_done = futures.iter().all(|(_, answer)| answer.is_some());
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, answer)| answer).collect()
}

/// Asserts that the world refused with this kind of [`WorldError`](outlast_core::WorldError).
macro_rules! assert_refused {
    ($answer:expr, $kind:ident) => {
        let answer = $answer;
        assert!(
            matches!(&answer, Err(outlast_core::WorldError::$kind(_))),
            "expected a refusal with {}, got {answer:?}",
            stringify!($kind)
        );
    };
}
pub(crate) use assert_refused;
