//! The rules of `TestClock`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use outlast_core::{Clock, Timestamp};
use outlast_testkit::TestClock;
use parking_lot::Mutex;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn seconds(clock: &TestClock, seconds: u64) -> Timestamp {
    clock.now().plus(Duration::from_secs(seconds))
}

#[test]
fn time_passes_only_when_the_test_says_so() {
    let clock = TestClock::new();
    let sleep = &mut clock.sleep_until(seconds(&clock, 60));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    clock.advance("59s");
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    clock.advance("1s");
    assert!(sleep.as_mut().poll(&mut cx).is_ready());
    assert_eq!(clock.now(), TestClock::BEGIN.plus(Duration::from_secs(60)));
}

#[test]
fn a_moment_that_has_passed_wakes_at_once_and_the_clock_never_goes_back() {
    let clock = TestClock::new();
    clock.advance_to(seconds(&clock, 5));
    clock.advance_to(TestClock::BEGIN);
    assert_eq!(clock.now(), TestClock::BEGIN.plus(Duration::from_secs(5)));
    drop(block_on(clock.sleep_until(TestClock::BEGIN)));
}

#[test]
#[should_panic(expected = "`soon` is not a duration")]
fn a_text_that_is_not_a_duration_panics_with_the_remedy() {
    TestClock::new().advance("soon");
}

#[test]
fn a_woken_sleeper_is_busy_until_its_work_is_done() {
    let clock = TestClock::new();
    let mut sleep = clock.sleep_until(seconds(&clock, 1));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut cx).is_pending());
    assert_eq!(clock.busy_count(), 0);
    clock.advance("1s");
    assert_eq!(clock.busy_count(), 1, "from the move on, before anyone polled");
    let busy = block_on(sleep);
    assert_eq!(clock.busy_count(), 1, "handed over, not counted twice");
    drop(busy);
    assert_eq!(clock.busy_count(), 0);
}

#[test]
fn who_stops_sleeping_is_forgotten() {
    let clock = TestClock::new();
    let mut cx = Context::from_waker(Waker::noop());
    for is_woken in [false, true] {
        let mut sleep = clock.sleep_until(seconds(&clock, 1));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        if is_woken {
            clock.advance("1s");
        }
        drop(sleep);
        assert_eq!((clock.next_sleeper(), clock.busy_count()), (None, 0));
    }
}

#[test]
fn until_idle_goes_from_moment_to_moment_in_order() {
    let clock = TestClock::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    block_on(async {
        for delay in [30, 10, 20] {
            let (own, seen, busy) = (clock.clone(), seen.clone(), clock.busy());
            tokio::spawn(async move {
                drop(busy);
                for _ in 0..2 {
                    let busy = own.sleep_until(seconds(&own, delay)).await;
                    // The next work takes several polls; the clock waits for it.
                    tokio::task::yield_now().await;
                    tokio::task::yield_now().await;
                    seen.lock().push((delay, own.now().since(TestClock::BEGIN).as_secs()));
                    drop(busy);
                }
            });
        }
        clock.run_until_idle().await;
    });
    assert_eq!(*seen.lock(), [(10, 10), (20, 20), (10, 20), (30, 30), (20, 40), (30, 60)]);
}

#[test]
fn until_a_moment_never_goes_past_it_and_ends_at_it() {
    let clock = TestClock::new();
    let woken = Arc::new(AtomicUsize::new(0));
    block_on(async {
        for delay in [1, 5, 6] {
            let (own, woken, busy) = (clock.clone(), woken.clone(), clock.busy());
            tokio::spawn(async move {
                drop(busy);
                own.sleep_until(seconds(&own, delay)).await;
                woken.fetch_add(1, Ordering::Relaxed);
            });
        }
        let moment = seconds(&clock, 5);
        clock.run_until(moment).await;
        assert_eq!((woken.load(Ordering::Relaxed), clock.now()), (2, moment));
        clock.run_until_idle().await;
        assert_eq!(woken.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn to_settle_does_not_move_the_clock() {
    let clock = TestClock::new();
    block_on(async {
        let (own, busy) = (clock.clone(), clock.busy());
        tokio::spawn(async move {
            drop(busy);
            own.sleep_until(Timestamp::from_micros(own.now().as_micros() + 1)).await;
        });
        clock.settle().await;
    });
    assert_eq!(clock.now(), TestClock::BEGIN);
}

#[test]
fn a_sleeper_without_end_is_not_awaited() {
    let clock = TestClock::new();
    block_on(async {
        let own = clock.clone();
        tokio::spawn(async move { own.sleep_until(Timestamp::NEVER).await });
        tokio::task::yield_now().await;
        clock.run_until_idle().await;
    });
    assert_eq!(clock.now(), TestClock::BEGIN);
}

#[test]
fn threads_share_one_clock() {
    let clock = TestClock::new();
    let naps = Arc::new(AtomicUsize::new(0));
    let busy: Vec<_> = (0..4).map(|_| clock.busy()).collect();
    std::thread::scope(|scope| {
        for (index, busy) in busy.into_iter().enumerate() {
            let (clock, naps) = (clock.clone(), naps.clone());
            scope.spawn(move || {
                let mut busy = Some(busy);
                for nap in 0..200 {
                    let at = clock.now().plus(Duration::from_millis((index as u64 * 7 + nap) % 5 + 1));
                    let mut sleep = clock.sleep_until(at);
                    // Registered before the previous work ends, so the clock stays busy.
                    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                    drop(busy.take());
                    busy = Some(block_on(sleep));
                    assert_eq!(clock.now(), at, "woken at its moment, neither early nor late");
                    naps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        block_on(clock.run_until_idle());
    });
    assert_eq!(naps.load(Ordering::Relaxed), 800);
}
