//! Generations: a run that continues without the history of its past.

use outlast_core::limits::{HISTORY_IN_CLAIM_EVENTS_MAX, PREFERENCE};
use outlast_core::{ClaimedHistory, Then};

use super::Case;
use super::turn_ext::{TurnExt, wait};

/// A claim, and `histories`, return only the turns from the one with the last cut on. `history` returns all of them.
pub async fn a_claim_brings_only_what_a_replay_needs(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_start("wf");
    let run = start.run;
    case.try_start(start.clone()).await.unwrap();
    let mut turn = case.turn(&worker.claim_one().await).steps(3);
    for generation in 2..5 {
        worker.commit_done(turn.clone()).await;
        turn = case.turn_after(&turn).steps(1).continuing(&start, 1).steps(2).then(Then::Release);
        worker.commit_done(turn.clone()).await;
        assert_eq!(case.world.run(run).await.unwrap().generation, generation);
        let claimed = worker.claim_one().await;
        assert_eq!((claimed.columns.replay_from, claimed.columns.continued), (turn.seq, generation - 1));
        assert_eq!(case.world.histories(&[run]).await.unwrap(), [Ok(vec![turn.record()])]);
        assert_eq!(claimed.history.clone().whole(), Some(vec![turn.record()]));
        let whole = case.world.history(run, 0, 100).await.unwrap();
        assert_eq!(whole.len() as u64, 2 * (generation - 1) + 1, "the past stays readable");
        turn = case.turn(&claimed).steps(1);
    }
    worker.commit_done(turn.clone().then(wait())).await;
    case.send_payload(run, "go").await;
    case.clock.advance(PREFERENCE);
    let claimed = case.join("wf").await.claim_one().await;
    assert_eq!(claimed.history.whole().map(|turns| turns.len()), Some(2), "and the turns after it");
}

/// Only the events since the last cut decide whether a claim leaves the history out.
pub async fn a_claim_leaves_out_a_history_that_is_long_since_the_last_cut(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_start("wf");
    case.try_start(start.clone()).await.unwrap();
    let many = HISTORY_IN_CLAIM_EVENTS_MAX as u32;
    let turn = case.turn(&worker.claim_one().await).steps(2 * many);
    worker.commit_done(turn.clone()).await;
    let turn = case.turn_after(&turn).continuing(&start, 1).then(Then::Release);
    worker.commit_done(turn.clone()).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.history.clone().whole().map(|turns| turns.len()), Some(1));
    worker.commit_done(case.turn(&claimed).steps(many).then(Then::Release)).await;
    let claimed = worker.claim_one().await;
    assert!(matches!(claimed.history, ClaimedHistory::LeftOut));
    assert_eq!(case.world.histories(&[turn.run]).await.unwrap()[0].as_ref().unwrap().len(), 2);
}

/// From the turn that continues a run on, workers need the version of its workflow with which it continued.
pub async fn a_run_continues_with_another_version(case: Case) {
    let old = case.join("wf").await;
    let start = case.new_start("wf");
    let run = start.run;
    case.try_start(start.clone()).await.unwrap();
    let turn = case.turn(&old.claim_one().await).continuing(&start, 2).then(Then::Release);
    old.commit_done(turn.clone()).await;
    assert_eq!(case.world.run(run).await.unwrap().version, 2);
    old.claim_nothing().await;
    let new = case.join_with(case.world.clone(), case.new_join(&[("wf", 2)])).await;
    let claimed = new.claim_one().await;
    assert_eq!((claimed.run, claimed.version, claimed.turn), (run, 2, turn.id));
    new.commit_done(case.turn(&claimed).completing("done")).await;
    let view = case.world.run(run).await.unwrap();
    assert_eq!((view.version, view.generation), (2, 2), "the end of a run does not change them");
}

/// A run can continue in the turn that starts it, and wait, be stuck or crash afterwards.
pub async fn a_run_keeps_its_generation(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_start("wf");
    let run = start.run;
    let turn = case.starting_turn(start.clone()).continuing(&start, 1).then(wait());
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.world.run(run).await.unwrap().generation, 2);
    case.send_payload(run, "go").await;
    let claimed = worker.claim_one().await;
    let turn = case.turn(&claimed).steps(2).continuing(&start, 1).then(Then::Release);
    worker.commit_done(turn.clone()).await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).then(super::turn_ext::stuck())).await;
    assert_eq!(case.world.run(run).await.unwrap().generation, 3);
    case.world.resume(run).await.unwrap();
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.columns.continued, claimed.columns.replay_from), (2, turn.seq));
    worker.leave().await;
    let claimed = case.join("wf").await.claim_one().await;
    assert_eq!((claimed.columns.continued, claimed.columns.replay_from), (2, turn.seq));
    assert_eq!(claimed.history.whole(), Some(vec![turn.record()]));
}
