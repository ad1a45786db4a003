//! Histories: gap-free, append-only, read in pages.

use outlast_core::limits::{HISTORIES_READ_MAX, HISTORY_IN_CLAIM_EVENTS_MAX, PREFERENCE};
use outlast_core::{ClaimedHistory, RunId, Then};

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// Events are numbered without gaps across turns, and are read as they were written.
pub async fn a_history_is_gap_free_and_in_order(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let mut turn = case.turn(&worker.claim_one().await).steps(2);
    let mut written = vec![];
    for count in [1, 3, 1] {
        worker.commit_done(turn.clone()).await;
        written.push(turn.record());
        case.clock.advance("1s");
        turn = case.turn_after(&turn).steps(count);
    }
    let history = case.world.history(turn.run, 0, 100).await.unwrap();
    assert_eq!(history[1..], written);
    let mut next = 0;
    for turn in &history {
        assert_eq!(turn.seq, next);
        next += turn.events.len() as u64;
    }
}

/// A history can be read from the first event of any turn, and in pages of turns.
pub async fn a_history_is_read_in_pages(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    let mut turn = case.turn(&worker.claim_one().await).steps(2);
    for _ in 0..4 {
        worker.commit_done(turn.clone()).await;
        turn = case.turn_after(&turn).steps(2);
    }
    let whole = case.world.history(turn.run, 0, 100).await.unwrap();
    assert_eq!(whole.len(), 5);
    let (mut pages, mut from) = (Vec::new(), 0);
    loop {
        let page = case.world.history(turn.run, from, 2).await.unwrap();
        assert!(page.len() <= 2, "the limit holds");
        let Some(last) = page.last() else { break };
        from = last.seq + last.events.len() as u64;
        pages.extend(page);
        assert!(pages.len() <= whole.len(), "no turn comes twice");
    }
    assert_eq!(pages, whole);
    let middle = case.world.history(turn.run, 3, 100).await.unwrap();
    assert_eq!(middle[0].seq, 3, "a turn that ended before is not repeated");
}

/// A turn without events is the run's last turn, but not in its history.
pub async fn a_turn_without_events_is_not_in_the_history(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).then(Then::Release);
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.world.history(run, 0, 10).await.unwrap().len(), 1);
    let again = worker.claim_one().await;
    assert_eq!((again.turn, again.seq), (turn.id, 1));
}

/// A claim returns the complete history, each time.
pub async fn a_claim_brings_the_whole_history(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    case.clock.advance("1s");
    let turn = case.turn(&worker.claim_one().await).steps(3).then(Then::Release);
    case.clock.advance("1s");
    worker.commit_done(turn.clone()).await;
    let claimed = worker.claim_one().await;
    let history = case.world.history(turn.run, 0, 100).await.unwrap();
    assert_eq!(claimed.history.whole(), Some(history));
    assert_eq!((claimed.turn, claimed.seq, claimed.turn_at, claimed.is_fresh), (turn.id, 4, turn.at, false));
}

/// A claim leaves out the history only for the session that held the run last, and so may have its future.
pub async fn a_claim_leaves_out_the_history_for_the_last_holder_alone(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.parked(&worker, wait()).await;
    case.send_payload(run, "go").await;
    let claimed = worker.claim_one().await;
    assert!(matches!(claimed.history, ClaimedHistory::LeftOut));
    worker.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    case.send_payload(run, "go").await;
    case.clock.advance(PREFERENCE);
    let claimed = other.claim_one().await;
    assert_eq!(claimed.history.clone().whole().map(|history| history.len()), Some(2));
    other.commit_done(case.turn(&claimed).steps(1).then(Then::Release)).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.history.whole().map(|history| history.len()), Some(3), "another one held it since");
}

/// A claim omits a long history, and returns one at the limit.
pub async fn a_claim_leaves_out_a_long_history(case: Case) {
    let worker = case.join("wf").await;
    for (events, is_whole) in [(HISTORY_IN_CLAIM_EVENTS_MAX, true), (HISTORY_IN_CLAIM_EVENTS_MAX + 1, false)]
    {
        let run = case.start("wf").await;
        let claimed = worker.claim_one().await;
        let turn = case.turn(&claimed).steps(events as u32 - 1).then(Then::Release);
        worker.commit_done(turn).await;
        let again = worker.claim_one().await;
        assert_eq!(again.seq, events);
        assert_eq!(matches!(again.history, ClaimedHistory::Whole(_)), is_whole);
        assert_eq!(matches!(again.history, ClaimedHistory::LeftOut), !is_whole);
        let histories = case.world.histories(&[run]).await.unwrap();
        assert_eq!(histories[0].as_ref().unwrap().len(), 2, "what is missing can be read");
    }
}

/// Histories of several runs are read whole, in their order, and one that is not there is an error of its own.
pub async fn histories_of_several_runs_are_read_at_once(case: Case) {
    let worker = case.join("wf").await;
    let runs = case.start_many("wf", 2).await;
    for claimed in worker.claim().await {
        let mut turn = case.turn(&claimed).steps(HISTORY_IN_CLAIM_EVENTS_MAX as u32);
        for _ in 0..3 {
            worker.commit_done(turn.clone()).await;
            turn = case.turn_after(&turn).steps(1);
        }
    }
    let unknown = RunId::from_bits(case.id());
    let histories = case.world.histories(&[runs[1], unknown, runs[0]]).await.unwrap();
    for (run, history) in [(runs[1], &histories[0]), (runs[0], &histories[2])] {
        assert_eq!(history, &case.world.history(run, 0, 100).await, "{run}");
        assert_eq!(history.as_ref().unwrap().len(), 4);
    }
    assert_refused!(histories[1].clone(), NotFound);
    assert_eq!(case.world.histories(&[]).await, Ok(Vec::new()));
    let many = vec![runs[0]; HISTORIES_READ_MAX + 1];
    assert_refused!(case.world.histories(&many).await, Limit);
}
