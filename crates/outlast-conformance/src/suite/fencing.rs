//! Fencing: a turn counts only from the holder, and only on the turn it was computed from.

use outlast_core::{Report, Then};

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// A session that does not hold the run cannot commit a turn of it.
pub async fn a_session_that_does_not_hold_the_run_is_fenced(case: Case) {
    let (holder, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&holder.claim_one().await).steps(1);
    assert_refused!(other.commit(turn.clone()).await, Fenced);
    assert_eq!(case.kinds(run).await, ["run_started"]);
    holder.commit_done(turn).await;
}

/// A run without a holder accepts no turn, not even from its last holder.
pub async fn a_run_that_was_let_go_takes_no_turn(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let parked = case.turn(&worker.claim_one().await).steps(1).then(wait());
    worker.commit_done(parked.clone()).await;
    assert_refused!(worker.commit(case.turn_after(&parked).steps(1)).await, Fenced);
}

/// A turn computed from an older turn than the last is refused.
pub async fn a_turn_on_an_old_turn_is_fenced(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let claimed = worker.claim_one().await;
    let first = case.turn(&claimed).steps(1);
    worker.commit_done(first.clone()).await;
    assert_refused!(worker.commit(case.turn(&claimed).steps(1)).await, Fenced);
    assert_eq!(case.kinds(first.run).await, ["run_started", "step_started"]);
}

/// A repeat of a turn that is no longer the last is refused.
pub async fn a_repeat_of_an_older_turn_is_fenced(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let first = case.turn(&worker.claim_one().await).steps(1);
    worker.commit_done(first.clone()).await;
    worker.commit_done(case.turn_after(&first).steps(1)).await;
    assert_refused!(worker.commit(first).await, Fenced);
}

/// A turn without events is also the run's last turn: turns computed from the one before it are refused.
pub async fn a_turn_without_events_makes_older_ones_stale(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).then(Then::Release)).await;
    let again = worker.claim_one().await;
    assert_refused!(worker.commit(case.turn(&claimed).steps(1)).await, Fenced);
    worker.commit_done(case.turn(&again).steps(1)).await;
}

/// A session that has left can neither claim nor commit.
pub async fn a_session_that_left_is_fenced(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    worker.leave().await;
    assert_refused!(worker.commit(turn).await, Fenced);
    assert_refused!(case.world.beat(worker.session, &Report::default(), &[]).await, Fenced);
    assert_refused!(case.world.held(worker.session).await, Fenced);
    assert_refused!(case.world.claim(worker.session, worker.request()).await, Fenced);
}

/// A session that was taken over can neither claim nor commit, even before its runs are claimed again.
pub async fn a_session_that_was_taken_over_is_fenced(case: Case) {
    let (zombie, heir) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&zombie.claim_one().await).steps(1);
    case.clock.advance("9s");
    heir.held().await;
    case.clock.advance("1s");
    assert_eq!(heir.takeover().await, 1);
    assert_refused!(zombie.commit(turn.clone()).await, Fenced);
    assert_refused!(case.world.beat(zombie.session, &Report::default(), &[]).await, Fenced);
    assert_refused!(case.world.claim(zombie.session, zombie.request()).await, Fenced);
    heir.claim_one().await;
    assert_refused!(zombie.commit(turn).await, Fenced);
    assert_eq!(case.kinds(run).await, ["run_started"]);
}

/// A session that has ended cannot start a run by a turn.
pub async fn a_session_that_is_gone_starts_nothing(case: Case) {
    let worker = case.join("wf").await;
    worker.leave().await;
    let turn = case.starting_turn(case.new_start("wf"));
    assert_refused!(worker.commit(turn.clone()).await, Fenced);
    assert_refused!(case.world.run(turn.run).await, NotFound);
}

/// A session that has never joined can neither claim nor commit.
pub async fn an_unknown_session_is_fenced(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    let stranger = outlast_core::SessionId::from_bits(case.id());
    assert_refused!(case.world.claim(stranger, worker.request()).await, Fenced);
    assert_refused!(super::case::one(case.world.commit(stranger, &[turn]).await), Fenced);
    assert_refused!(case.world.beat(stranger, &Report::default(), &[]).await, Fenced);
    assert_eq!(case.kinds(run).await, ["run_started"]);
}
