//! Histories: gap-free, append-only, read in pages.

use outlast_core::Then;

use super::Case;
use super::shape::Shape;

/// Events are numbered without gaps, turn after turn, and come back as they were written.
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

/// A history is read on from any turn's first event, so many turns at a time.
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
    let middle = case.world.history(turn.run, 2, 100).await.unwrap();
    assert_eq!(middle[0].seq, 3, "a turn that began before is not repeated");
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

/// A claim brings the whole history, each time.
pub async fn a_claim_brings_the_whole_history(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    case.clock.advance("1s");
    let turn = case.turn(&worker.claim_one().await).steps(3).then(Then::Release);
    case.clock.advance("1s");
    worker.commit_done(turn.clone()).await;
    let claimed = worker.claim_one().await;
    let history = case.world.history(turn.run, 0, 100).await.unwrap();
    assert_eq!(claimed.history, Some(history));
    assert_eq!((claimed.turn, claimed.seq, claimed.turn_at, claimed.is_fresh), (turn.id, 4, turn.at, false));
}

/// A claim leaves out the history that the worker still has, and says so by the last turn.
pub async fn a_claim_leaves_out_a_history_that_is_known(case: Case) {
    let worker = case.join("wf").await;
    let known = case.parked(&worker, super::shape::wait()).await;
    let last = case.world.history(known, 0, 10).await.unwrap()[0].id;
    case.start("wf").await;
    case.tell(known, "go").await;
    let mut request = worker.request();
    request.known = std::sync::Arc::new(move |run, turn| run == known && turn != last);
    let claimed = worker.work(request).await.claimed;
    let with_history = |run| claimed.iter().find(|claimed| claimed.run == run).unwrap().history.is_some();
    assert!(!with_history(known), "asked with the last turn, which is not the first");
    assert!(claimed.iter().filter(|claimed| claimed.run != known).all(|claimed| claimed.history.is_some()));
}
