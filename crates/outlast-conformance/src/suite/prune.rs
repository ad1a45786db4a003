//! Pruning: runs that ended long ago are deleted.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{ListOrder, Pruned, RunId, RunQuery, Start, Started, Status, Timestamp};

use super::turn_ext::{TurnExt, stuck, wait};
use super::{Case, assert_refused};

async fn prune(case: &Case, before: Timestamp, after: Option<RunId>, limit: usize) -> Pruned {
    case.world.prune(before, after, limit).await.expect("the world prunes")
}

/// Prunes all runs that ended before now; returns how many.
async fn prune_all(case: &Case) -> u64 {
    let (mut forgotten, mut after) = (0, None);
    loop {
        let pruned = prune(case, case.clock.now(), after, 100).await;
        forgotten += pruned.runs;
        after = pruned.next;
        if after.is_none() {
            return forgotten;
        }
    }
}

/// Pruning a run deletes all its data.
pub async fn a_pruned_run_is_forgotten(case: Case) {
    let worker = case.join("wf").await;
    let tags = [("shop".to_owned(), "7".to_owned())];
    let start = Start { tags: tags.clone().into(), ..case.new_start("wf") };
    let run = case.try_start(start).await.unwrap().run;
    case.send_payload(run, "x").await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn.clone()).await;
    case.clock.advance("1us");
    assert_eq!(prune(&case, case.clock.now(), None, 10).await, Pruned { runs: 1, next: None });
    assert_refused!(case.world.run(run).await, NotFound);
    assert_refused!(case.world.history(run, 0, 10).await, NotFound);
    assert_refused!(case.world.inbox(run, 0).await, NotFound);
    assert_refused!(case.world.ended(run, case.clock.now()).await, NotFound);
    assert_refused!(case.try_send(case.new_message(run, "late")).await, NotFound);
    assert_refused!(worker.commit(turn).await, Fenced);
    assert_eq!(case.listed(RunQuery { limit: 10, ..RunQuery::default() }).await, []);
    assert_eq!(case.listed(RunQuery { tags: tags.into(), limit: 10, ..RunQuery::default() }).await, []);
    assert!(case.counts().await.is_empty());
}

/// Only runs that ended before the time are pruned: to the microsecond, and by their end, not their start.
pub async fn a_run_that_ended_later_is_kept(case: Case) {
    let worker = case.join("wf").await;
    let first = case.completed(&worker).await;
    case.clock.advance("1s");
    let slow = case.held(&worker).await;
    let second = case.completed(&worker).await;
    let moment = case.clock.now();
    case.clock.advance("1s");
    worker.commit_done(case.turn(&slow).completing("out")).await;
    assert_eq!(prune(&case, moment, None, 10).await.runs, 1);
    assert_refused!(case.world.run(first).await, NotFound);
    assert_eq!(case.status(second).await, Status::Completed);
    assert_eq!(case.status(slow.run).await, Status::Completed);
    assert_eq!(prune(&case, moment.plus(std::time::Duration::from_micros(1)), None, 10).await.runs, 1);
    assert_refused!(case.world.run(second).await, NotFound);
    assert_eq!(case.status(slow.run).await, Status::Completed);
}

/// A run that has not ended is kept, however old.
pub async fn a_run_that_has_not_ended_is_kept(case: Case) {
    let worker = case.join("wf").await;
    let runs = [
        case.parked(&worker, wait()).await,
        case.parked(&worker, stuck()).await,
        case.held(&worker).await.run,
    ];
    let pending = case.start("wf").await;
    case.clock.advance("1000d");
    assert_eq!(prune_all(&case).await, 0);
    for run in runs.into_iter().chain([pending]) {
        assert_eq!(case.kinds(run).await, ["run_started"]);
    }
}

/// Runs of every final status are pruned.
pub async fn every_ended_run_is_pruned(case: Case) {
    let worker = case.join("wf").await;
    for index in 0..4 {
        let turn = case.turn(&case.held(&worker).await);
        let turn = match index {
            0 => turn.completing("out"),
            1 => turn.failing(),
            2 => turn.cancelling(),
            _ => turn.terminating(),
        };
        worker.commit_done(turn).await;
    }
    case.clock.advance("1s");
    assert_eq!(prune_all(&case).await, 4);
    assert!(case.counts().await.is_empty());
}

/// A call examines a limited number of runs and returns where the next call continues; the last call returns nothing.
pub async fn pruning_continues_where_it_stopped(case: Case) {
    let worker = case.join("wf").await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(case.completed(&worker).await);
        runs.push(case.parked(&worker, wait()).await);
    }
    runs.push(case.completed(&worker).await);
    case.clock.advance("1s");
    let now = case.clock.now();
    assert_eq!(prune(&case, now, None, 2).await, Pruned { runs: 1, next: Some(runs[1]) });
    assert_eq!(prune(&case, now, Some(runs[1]), 2).await, Pruned { runs: 1, next: Some(runs[3]) });
    assert_eq!(prune(&case, now, Some(runs[3]), 2).await, Pruned { runs: 1, next: None });
    let kept = RunQuery { order: ListOrder::OldestFirst, limit: 10, ..RunQuery::default() };
    assert_eq!(case.listed(kept).await, [runs[1], runs[3]]);
    assert_eq!(case.counts().await, [(Status::Waiting, 2)].into());
}

/// A call that looked at as many as it may continues behind them, although it was the last.
pub async fn a_full_call_is_not_the_last(case: Case) {
    let worker = case.join("wf").await;
    let run = case.completed(&worker).await;
    case.clock.advance("1s");
    let now = case.clock.now();
    assert_eq!(prune(&case, now, None, 1).await, Pruned { runs: 1, next: Some(run) });
    assert_eq!(prune(&case, now, Some(run), 1).await, Pruned { runs: 0, next: None });
}

/// The number of runs that one call examines has a limit.
pub async fn one_call_prunes_no_more_than_its_limit(case: Case) {
    let runs = case.start_many("wf", PRUNE_RUNS_MAX + 1).await;
    let worker = case.join("wf").await;
    for _ in 0..PRUNE_RUNS_MAX.div_ceil(100) + 1 {
        let turns: Vec<_> =
            worker.claim().await.iter().map(|claimed| case.turn(claimed).completing("out")).collect();
        worker.world.commit(worker.session, &turns).await.unwrap();
    }
    case.clock.advance("1s");
    let pruned = prune(&case, case.clock.now(), None, usize::MAX).await;
    assert_eq!(pruned, Pruned { runs: PRUNE_RUNS_MAX as u64, next: Some(runs[PRUNE_RUNS_MAX - 1]) });
    assert_eq!(case.counts().await, [(Status::Completed, 1)].into());
}

/// A repeated call prunes nothing more, and does not count the pruned runs.
pub async fn a_repeated_call_forgets_nothing_more(case: Case) {
    let worker = case.join("wf").await;
    case.completed(&worker).await;
    case.clock.advance("1s");
    let now = case.clock.now();
    assert_eq!(prune(&case, now, None, 1).await.runs, 1);
    assert_eq!(prune(&case, now, None, 1).await, Pruned { runs: 0, next: None });
}

/// The key of a pruned run can be used again.
pub async fn the_key_of_a_pruned_run_is_free(case: Case) {
    let worker = case.join("wf").await;
    case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    case.clock.advance("1s");
    prune_all(&case).await;
    let start = case.new_keyed_start("other", "k", "another input");
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
}

/// Pruning a run whose key names a later run does not free the key.
pub async fn pruning_leaves_a_key_to_the_run_that_has_it(case: Case) {
    let worker = case.join("wf").await;
    case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    case.clock.advance("1h");
    let mut start = case.new_keyed_start("wf", "k", "in");
    start.key.as_mut().unwrap().window = Some(std::time::Duration::from_secs(60));
    let run = case.try_start(start).await.unwrap().run;
    assert_eq!(prune_all(&case).await, 1);
    let again = case.try_start(case.new_keyed_start("wf", "k", "in")).await;
    assert_eq!(again, Ok(Started { run, is_new: false }));
}

/// Pruning a parent does not affect its children.
pub async fn the_children_of_a_pruned_run_are_kept(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("child").await);
    let parent = case.held(&worker).await;
    let child = case.new_child(parent.run, 3, "child");
    worker.commit_done(case.turn(&parent).child(child.clone()).completing("out")).await;
    case.clock.advance("1s");
    assert_eq!(prune_all(&case).await, 1);
    assert_eq!(case.view(child.start.run).await.parent, child.start.parent);
    let children = RunQuery { parent: Some(parent.run), limit: 10, ..RunQuery::default() };
    assert_eq!(case.listed(children).await, [child.start.run]);
    let end = case.turn(&other.claim_one().await).sending(case.new_message(parent.run, "x"));
    other.commit_done(end.completing("out")).await;
}

/// A page continues behind a run that was pruned meanwhile.
pub async fn pages_continue_after_a_pruned_run(case: Case) {
    let worker = case.join("wf").await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(case.completed(&worker).await);
        runs.push(case.parked(&worker, wait()).await);
    }
    let query = RunQuery { order: ListOrder::OldestFirst, limit: 3, ..RunQuery::default() };
    let first = case.world.runs(query.clone()).await.unwrap();
    assert_eq!(first.next, Some(runs[2]));
    case.clock.advance("1s");
    prune_all(&case).await;
    assert_eq!(case.listed(RunQuery { after: first.next, ..query.clone() }).await, [runs[3]]);
    assert_eq!(case.listed(RunQuery { before: first.next, ..query }).await, [runs[1]]);
}
