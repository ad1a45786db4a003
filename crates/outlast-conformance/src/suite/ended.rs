//! Waiting for a run's end.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use outlast_core::{Ended, Outcome, RunId, Timestamp};

use super::case::text;
use super::turn_ext::{TurnExt, failure};
use super::{Case, all, assert_refused};

/// A run that has ended answers at once.
pub async fn an_ended_run_answers_at_once(case: Case) {
    let worker = case.join("wf").await;
    let run = case.completed(&worker).await;
    let expected = Ended { run, outcome: Outcome::Completed(text("out")) };
    assert_eq!(case.world.ended(run, Timestamp::NEVER).await, Ok(Some(expected.clone())));
    assert_eq!(case.world.ended(run, case.clock.now()).await, Ok(Some(expected)), "even without patience");
}

/// A waiter gets the end, with every final status.
pub async fn a_waiter_receives_every_final_status(case: Case) {
    let worker = case.join("wf").await;
    for index in 0..3 {
        let run = case.start("wf").await;
        let turn = case.turn(&worker.claim_one().await);
        let (turn, outcome) = match index {
            0 => (turn.completing("out"), Outcome::Completed(text("out"))),
            1 => (turn.failing(), Outcome::Failed(failure())),
            _ => (turn.cancelling(), Outcome::Cancelled(failure())),
        };
        let mut waiting = pin!(case.world.ended(run, Timestamp::NEVER));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending(), "the run has not ended");
        worker.commit_done(turn).await;
        assert_eq!(waiting.await, Ok(Some(Ended { run, outcome })));
    }
}

/// All callers that wait for a run receive its end; callers that wait for another run do not.
pub async fn every_waiter_receives_the_end(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    let other = case.start("wf").await;
    let mut other_end = pin!(case.world.ended(other, Timestamp::NEVER));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(other_end.as_mut().poll(&mut cx).is_pending());
    let waiters = all((0..5).map(|index| {
        let (world, worker, turn) = (case.world.clone(), &worker, turn.clone());
        async move {
            // The last one, polled after the others wait, ends the run.
            if index == 4 {
                worker.commit_done(turn).await;
            }
            world.ended(run, Timestamp::NEVER).await.unwrap().is_some()
        }
    }));
    assert_eq!(waiters.await, [true; 5]);
    assert!(other_end.as_mut().poll(&mut cx).is_pending());
}

/// A wait ends without a result when the clock reaches its limit, and not before.
pub async fn a_wait_ends_at_its_limit(case: Case) {
    let run = case.start("wf").await;
    let until = case.clock.now().plus(Duration::from_secs(5));
    let mut waiting = pin!(case.world.ended(run, until));
    let mut cx = Context::from_waker(Waker::noop());
    case.clock.advance("4s999ms");
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    case.clock.advance("1ms");
    assert_eq!(waiting.await, Ok(None));
    assert_eq!(case.clock.busy_count(), 0, "nobody is busy afterwards");
    assert_eq!(case.world.ended(run, case.clock.now()).await, Ok(None));
}

/// A caller that stops waiting leaves no registration behind.
pub async fn who_stops_waiting_leaves_nothing_behind(case: Case) {
    let run = case.start("wf").await;
    let until = case.clock.now().plus(Duration::from_secs(5));
    {
        let mut waiting = pin!(case.world.ended(run, until));
        let poll = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Pending));
    }
    case.clock.settle().await;
    assert_eq!(case.clock.next_sleeper(), None);
}

/// Waiting for a run that does not exist is an error.
pub async fn the_end_of_an_unknown_run_is_not_found(case: Case) {
    let unknown = RunId::from_bits(case.id());
    assert_refused!(case.world.ended(unknown, Timestamp::NEVER).await, NotFound);
}
