//! Crashes of the worker of a test world.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use outlast::prelude::*;
use outlast_testkit::{CrashPoint, TestClock, TestWorld, TestWorldBuilder};
use parking_lot::Mutex;

/// The keys with which steps were attempted.
#[derive(Clone, Debug, Default)]
struct Attempts(Arc<Mutex<Vec<String>>>);

impl Attempts {
    fn list(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

#[step]
async fn charge(cx: StepContext<Attempts>, cents: u64) -> Result<u64, StepError> {
    cx.state().0.lock().push(format!("charge {}", cx.op()));
    Ok(cents)
}

#[step]
async fn ship(cx: StepContext<Attempts>) -> Result<(), StepError> {
    cx.state().0.lock().push(format!("ship {}", cx.op()));
    Ok(())
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<u64, Error> {
    let paid = ctx.step(charge, cents).await?;
    ctx.sleep("1d").await?;
    ctx.step(ship, ()).await?;
    Ok(paid)
}

/// A world in memory and one on SQLite, each with the attempts of its steps.
fn worlds() -> [(TestWorldBuilder<Attempts>, Attempts); 2] {
    [TestWorld::builder(), TestWorld::builder().on_sqlite()].map(|world| {
        let attempts = Attempts::default();
        (world.state(attempts.clone()).register((checkout, charge, ship)), attempts)
    })
}

#[tokio::test]
async fn a_step_whose_outcome_is_lost_is_attempted_again() {
    for (world, attempts) in worlds() {
        let world = world.start().await;
        world.crash_worker(CrashPoint::after_effect_of(charge));
        let run = world.client().start(checkout, 42).await.unwrap();
        assert_eq!(world.run_until_done(&run).await.unwrap(), 42);
        assert_eq!(world.crashes(), 1);
        assert_eq!(attempts.list(), ["charge 0", "charge 0", "ship 2"]);
        world.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_n_th_attempt_at_another_step_crashes() {
    for (world, attempts) in worlds() {
        let world = world.start().await;
        world.crash_worker(CrashPoint::after_effect_of(ship));
        world.crash_worker(CrashPoint::after_effect_of(ship).nth(2));
        let run = world.client().start(checkout, 42).await.unwrap();
        assert_eq!(world.run_until_done(&run).await.unwrap(), 42);
        assert_eq!(attempts.list(), ["charge 0", "ship 2", "ship 2", "ship 2"]);
        assert_eq!(world.crashes(), 2);
        world.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_crash_before_a_commit_loses_the_turn_and_one_after_it_nothing() {
    for (point, expected) in [
        (CrashPoint::before_commit(), ["charge 0", "charge 0"]),
        (CrashPoint::after_commit(), ["charge 0", "ship 2"]),
    ] {
        for (world, attempts) in worlds() {
            let world = world.start().await;
            // The second commit of the run records the outcome of the first step.
            world.crash_worker(point.clone().nth(2));
            let run = world.client().start(checkout, 42).await.unwrap();
            assert_eq!(world.run_until_done(&run).await.unwrap(), 42);
            assert_eq!(attempts.list()[..2], expected);
            world.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn every_commit_can_be_the_last_of_a_worker() {
    for point in [CrashPoint::before_commit(), CrashPoint::after_commit()] {
        for kind in 0..2 {
            let mut crashes = 0;
            for n in 1.. {
                let [memory, sqlite] = worlds();
                let (world, _) = if kind == 0 { memory } else { sqlite };
                let world = world.start().await;
                world.crash_worker(point.clone().nth(n));
                let run = world.client().start(checkout, 42).await.unwrap();
                assert_eq!(world.run_until_done(&run).await.unwrap(), 42);
                assert_eq!(world.now(), TestClock::BEGIN.plus(std::time::Duration::from_secs(86_400)));
                if world.crashes() == 0 {
                    break;
                }
                crashes += 1;
            }
            assert!(crashes >= 3, "{crashes}");
        }
    }
}

#[tokio::test]
async fn a_worker_crashes_now_and_no_time_passes() {
    for (world, attempts) in worlds() {
        let world = world.start().await;
        let run = world.client().start(checkout, 42).await.unwrap();
        world.wait_for_sleep(&run).await;
        world.crash_worker_now().await;
        assert_eq!((world.crashes(), world.now()), (1, TestClock::BEGIN));
        assert_eq!(world.run_until_done(&run).await.unwrap(), 42);
        assert_eq!(attempts.list(), ["charge 0", "ship 2"]);
        world.stop().await.unwrap();
    }
}

#[tokio::test]
#[should_panic(expected = "1 planned crashes did not happen")]
async fn a_crash_that_does_not_happen_is_noticed() {
    let [(world, _), _] = worlds();
    let world = world.start().await;
    world.crash_worker(CrashPoint::before_commit().nth(100));
    let run = world.client().start(checkout, 42).await.unwrap();
    world.run_until_done(&run).await.unwrap();
    world.stop().await.unwrap();
}
