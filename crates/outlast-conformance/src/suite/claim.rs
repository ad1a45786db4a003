//! Claiming runs.

use outlast_core::event::{RULES, format_of_rules};
use outlast_core::limits::CLAIM_RUNS_MAX;
use outlast_core::{ClaimRequest, RunId, Status, Then};

use super::turn_ext::{TurnExt, wait, wait_until};
use super::{Case, all};

/// A claimed run is running, and its session holds it.
pub async fn a_claimed_run_is_running_and_held(case: Case) {
    let run = case.start("wf").await;
    let worker = case.join("wf").await;
    case.clock.advance("1s");
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, &*claimed.workflow, claimed.version), (run, "wf", 1));
    assert_eq!((claimed.seq, claimed.consumed, claimed.columns.crashes, claimed.is_fresh), (1, 0, 0, true));
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(worker.session)));
    assert_eq!(view.updated_at, case.clock.now());
}

/// The run that has been ready the longest is claimed first.
pub async fn the_longest_ready_comes_first(case: Case) {
    let worker = case.join("wf").await;
    let due =
        case.parked(&worker, wait_until(case.clock.now().plus(std::time::Duration::from_secs(2)))).await;
    let messaged = case.parked(&worker, wait()).await;
    case.clock.advance("1s");
    let new = case.start("wf").await;
    case.clock.advance("2s");
    case.send_payload(messaged, "x").await;
    case.clock.advance("1s");
    let newest = case.start("wf").await;
    let order: Vec<RunId> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(order, [new, due, messaged, newest]);
}

/// Runs that became ready at the same moment come in the order of their ids.
pub async fn equally_ready_runs_come_in_order_of_their_ids(case: Case) {
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(case.start("wf").await);
    }
    let worker = case.join("wf").await;
    let order: Vec<RunId> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(order, started);
}

/// A claim returns no more runs than its limit; the others stay ready.
pub async fn a_claim_brings_no_more_than_it_asks_for(case: Case) {
    for _ in 0..5 {
        case.start("wf").await;
    }
    let worker = case.join("wf").await;
    let two = ClaimRequest { limit: 2, ..worker.request() };
    assert_eq!(worker.work(two).await.claimed.len(), 2);
    assert_eq!(worker.claim().await.len(), 3);
}

/// The number of runs that one claim returns has a limit.
pub async fn a_claim_has_a_limit(case: Case) {
    case.start_many("wf", CLAIM_RUNS_MAX + 1).await;
    let worker = case.join("wf").await;
    let many = ClaimRequest { limit: usize::MAX, ..worker.request() };
    assert_eq!(worker.work(many).await.claimed.len(), CLAIM_RUNS_MAX);
    assert_eq!(worker.claim().await.len(), 1);
}

/// A claim with limit 0 takes no run, but returns the unread messages of held runs.
pub async fn a_claim_of_nothing_brings_only_unread_messages(case: Case) {
    let worker = case.join("wf").await;
    let held = case.start("wf").await;
    worker.claim_one().await;
    let other = case.start("wf").await;
    case.send_payload(held, "a").await;
    let work = worker.work(ClaimRequest { limit: 0, ..worker.request() }).await;
    assert!(work.claimed.is_empty(), "{work:?}");
    assert_eq!(work.unread.iter().map(|unread| unread.run).collect::<Vec<_>>(), [held]);
    assert_eq!(case.status(other).await, Status::Pending);
}

/// A claim does not change runs whose code the worker lacks.
pub async fn a_worker_without_the_code_leaves_a_run_alone(case: Case) {
    let run = case.start("wf").await;
    let before = case.view(run).await;
    let stranger = case.join("other").await;
    case.clock.advance("1h");
    stranger.claim_nothing().await;
    assert_eq!(case.view(run).await, before);
    assert_eq!(case.join("wf").await.claim_one().await.run, run);
}

/// A worker with another version of a workflow does not have its code.
pub async fn another_version_is_other_code(case: Case) {
    let mut start = case.new_start("wf");
    start.version = 2;
    case.try_start(start.clone()).await.unwrap();
    let old = case.join("wf").await;
    old.claim_nothing().await;
    let both = case.join_with(case.world.clone(), case.new_join(&[("wf", 1), ("wf", 2)])).await;
    assert_eq!(both.claim_one().await.version, 2);
}

/// One claim returns runs of all workflows whose code the worker has.
pub async fn a_claim_brings_runs_of_all_the_workers_code(case: Case) {
    let (a, b) = (case.start("a").await, case.start("b").await);
    case.start("c").await;
    let worker = case.join_with(case.world.clone(), case.new_join(&[("b", 1), ("a", 1), ("a", 2)])).await;
    let runs: Vec<RunId> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(runs, [a, b]);
}

/// A worker that cannot read the run's format is not given it.
pub async fn a_worker_that_cannot_read_the_format_is_not_given_the_run(case: Case) {
    case.start("wf").await;
    let worker = case.join("wf").await;
    let old = ClaimRequest { format: format_of_rules(RULES) - 1, ..worker.request() };
    assert!(worker.work(old).await.claimed.is_empty());
    worker.claim_one().await;
}

/// A held run cannot be claimed by another session, nor again by its holder.
pub async fn a_held_run_is_not_given_again(case: Case) {
    let run = case.start("wf").await;
    let (first, second) = (case.join("wf").await, case.join_elsewhere("wf").await);
    first.claim_one().await;
    case.send_payload(run, "x").await;
    case.clock.advance("1h");
    second.claim_nothing().await;
    first.claim_nothing().await;
}

/// Workers of two processes that claim at the same time never hold the same run.
pub async fn two_workers_never_hold_one_run(case: Case) {
    case.start_many("wf", 40).await;
    let workers = [case.join("wf").await, case.join_elsewhere("wf").await];
    let claims = (0..8).map(|index| {
        let worker = &workers[index % 2];
        worker.work(ClaimRequest { limit: 7, ..worker.request() })
    });
    let claimed = all(claims).await.into_iter().flat_map(|work| work.claimed);
    let mut runs: Vec<RunId> = claimed.map(|claimed| claimed.run).collect();
    assert_eq!(runs.len(), 40);
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), 40, "each run was given once");
}

/// Unread messages of a held run are returned by every claim until a commit consumes them.
pub async fn unread_messages_are_brought_until_they_are_consumed(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    assert!(worker.work(worker.request()).await.unread.is_empty());
    case.send_payload(run, "a").await;
    case.send_payload(run, "b").await;
    for _ in 0..2 {
        let unread = worker.work(worker.request()).await.unread;
        let positions: Vec<u64> = unread[0].messages.iter().map(|message| message.position).collect();
        assert_eq!((unread.len(), unread[0].run, positions), (1, run, vec![1, 2]));
    }
    let turn = case.turn(&claimed).steps(1).consuming(1);
    worker.commit_done(turn.clone()).await;
    assert_eq!(worker.work(worker.request()).await.unread[0].messages[0].position, 2);
    worker.commit_done(case.turn_after(&turn).steps(1).consuming(2)).await;
    assert!(worker.work(worker.request()).await.unread.is_empty());
}

/// Messages that a claim returned with the run are still unread in the next claim.
pub async fn messages_that_came_with_the_run_stay_unread(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let claimed = worker.claim_one().await;
    let unread = worker.work(worker.request()).await.unread;
    assert_eq!((unread[0].run, &unread[0].messages), (run, &claimed.inbox));
}

/// Unread messages are returned only to the session that holds their run.
pub async fn unread_messages_are_brought_to_the_holder_only(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    case.send_payload(run, "a").await;
    assert!(other.work(other.request()).await.unread.is_empty());
    worker.commit_done(case.turn(&claimed).then(Then::Release)).await;
    assert!(worker.work(ClaimRequest { limit: 0, ..worker.request() }).await.unread.is_empty());
}
