//! Deleting single runs, and the quarantine that prevents it.

use outlast_core::{Marks, QuarantineChange, RunId, RunQuery, Start, Status, Turn};

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// A deleted run is forgotten with all its data, and no other run is.
pub async fn a_deleted_run_is_forgotten(case: Case) {
    let worker = case.join("wf").await;
    let before = case.completed(&worker).await;
    let tags = [("shop".to_owned(), "7".to_owned())];
    let start = Start { tags: tags.clone().into(), ..case.new_keyed_start("wf", "k", "in") };
    let run = case.try_start(start).await.unwrap().run;
    case.send_payload(run, "x").await;
    worker.commit_done(case.turn(&worker.claim_one().await).completing("out")).await;
    let after = case.completed(&worker).await;
    case.world.delete(run).await.unwrap();
    assert_refused!(case.world.run(run).await, NotFound);
    assert_refused!(case.world.history(run, 0, 10).await, NotFound);
    assert_refused!(case.world.inbox(run, 0).await, NotFound);
    assert_refused!(case.world.delete(run).await, NotFound);
    assert_eq!(case.listed(RunQuery { limit: 10, ..RunQuery::default() }).await, [after, before]);
    assert_eq!(case.listed(RunQuery { tags: tags.into(), limit: 10, ..RunQuery::default() }).await, []);
    assert_eq!(case.counts().await[&Status::Completed], 2);
    let again = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    assert!(again.is_new, "its key can be used again");
}

/// Only a run that has ended is deleted.
pub async fn a_run_that_has_not_ended_is_not_deleted(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    assert_refused!(case.world.delete(waiting).await, Conflict);
    assert_refused!(case.world.delete(case.held(&worker).await.run).await, Conflict);
    assert_eq!(case.status(waiting).await, Status::Waiting);
    assert_refused!(case.world.delete(RunId::from_bits(case.id())).await, NotFound);
}

/// A run in quarantine is neither deleted nor pruned, until it is released.
pub async fn a_run_in_quarantine_is_not_deleted(case: Case) {
    let worker = case.join("wf").await;
    let (kept, other) = (case.completed(&worker).await, case.completed(&worker).await);
    let quarantine = |change| case.world.quarantine(kept, change);
    assert_eq!(quarantine(QuarantineChange::Begin).await.unwrap(), Marks::NONE);
    assert_eq!(quarantine(QuarantineChange::Begin).await.unwrap(), Marks::QUARANTINED);
    assert_refused!(case.world.delete(kept).await, Conflict);
    case.clock.advance("1us");
    assert_eq!(case.world.prune(case.clock.now(), None, 10).await.unwrap().runs, 1);
    assert_refused!(case.world.run(other).await, NotFound);
    assert_eq!(case.view(kept).await.marks, Marks::QUARANTINED);
    assert_eq!(case.world.mark_counts().await.unwrap()[&Marks::QUARANTINED], 1);
    assert_eq!(quarantine(QuarantineChange::End).await.unwrap(), Marks::QUARANTINED);
    assert_eq!(quarantine(QuarantineChange::End).await.unwrap(), Marks::NONE);
    case.world.delete(kept).await.unwrap();
    assert_refused!(quarantine(QuarantineChange::Begin).await, NotFound);
}

/// A turn with which a run fails can put it into quarantine, also the turn that starts it. One with which it completes
/// cannot.
pub async fn a_failing_turn_can_put_its_run_into_quarantine(case: Case) {
    let worker = case.join("wf").await;
    let quarantined = |turn: Turn| turn.with_columns(|columns| columns.marks = Marks::QUARANTINED);
    let mut failed = Vec::new();
    case.try_start(case.new_start("wf")).await.unwrap();
    let turn = quarantined(case.turn(&worker.claim_one().await).failing());
    failed.push(turn.run);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    let turn = quarantined(case.starting_turn(case.new_start("wf")).failing());
    failed.push(turn.run);
    worker.commit_done(turn).await;
    let completed = quarantined(case.starting_turn(case.new_start("wf")).completing("out"));
    worker.commit_done(completed.clone()).await;
    assert!(case.view(completed.run).await.marks.is_empty());
    case.clock.advance("1d");
    for run in failed {
        assert_eq!(case.view(run).await.marks, Marks::QUARANTINED);
        assert_refused!(case.world.delete(run).await, Conflict);
        assert_eq!(case.world.quarantine(run, QuarantineChange::End).await.unwrap(), Marks::QUARANTINED);
        case.world.delete(run).await.unwrap();
    }
}

/// A quarantine changes nothing else of a run: it continues, and its pause is independent.
pub async fn a_run_in_quarantine_continues(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    case.world.quarantine(claimed.run, QuarantineChange::Begin).await.unwrap();
    worker.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    case.send_payload(claimed.run, "x").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    assert_eq!(case.view(claimed.run).await.marks, Marks::QUARANTINED);
}

/// Deleted turns are gone, and the numbers of other events stay: claims and later turns do not notice.
pub async fn skipped_turns_are_deleted(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let mut turn = case.turn(&worker.claim_one().await).steps(1);
    let other = case.start("wf").await;
    let mut seqs = vec![0];
    for _ in 0..6 {
        worker.commit_done(turn.clone()).await;
        seqs.push(turn.seq);
        turn = case.turn_after(&turn).steps(1);
    }
    case.world.delete_turns(run, seqs[2]..seqs[5], &[seqs[3]]).await.unwrap();
    let left = async || -> Vec<u64> {
        let turns = case.world.history(run, 0, 100).await.unwrap();
        turns.into_iter().map(|turn| turn.seq).collect()
    };
    let expected = [seqs[0], seqs[1], seqs[3], seqs[5], seqs[6]];
    assert_eq!(left().await, expected);
    case.world.delete_turns(run, seqs[2]..seqs[5], &[seqs[3]]).await.unwrap();
    assert_eq!(left().await, expected, "a repeat changes nothing");
    worker.commit_done(turn.clone()).await;
    assert_eq!(left().await.last(), Some(&turn.seq), "the next turn has the next number");
    assert_eq!(case.world.history(other, 0, 100).await.unwrap().len(), 1, "no other run is affected");
    let nobody = RunId::from_bits(case.id());
    case.world.delete_turns(nobody, 0..10, &[]).await.unwrap();
}
