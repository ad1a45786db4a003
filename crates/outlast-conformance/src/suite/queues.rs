//! Queues: runs are given to the workers that serve theirs.

use outlast_core::limits::{DEADLINE_GRACE, NAME_BYTES_MAX, QUEUE_DEFAULT, QUEUES_MAX};
use outlast_core::queue::workflow_of_step;
use outlast_core::{
    BuiltInRuns, Event, Join, ListOrder, QueuedSteps, RunId, RunQuery, Start, StartKey, Started, Status, Then,
};

use super::case::text;
use super::turn_ext::{TurnExt, stuck, wait, wait_until};
use super::{Case, TestWorker, assert_refused};

/// Starts a run in a queue.
async fn start_in(case: &Case, queue: &str) -> RunId {
    case.try_start(case.new_queued_start("wf", queue)).await.unwrap().run
}

/// A run in queue `gpu` that a worker of it has parked, and that worker.
async fn parked(case: &Case, then: Then) -> (RunId, TestWorker) {
    let worker = case.join_queues("wf", &["gpu"]).await;
    let run = start_in(case, "gpu").await;
    worker.commit_done(case.turn(&worker.claim_one().await).steps(1).then(then)).await;
    (run, worker)
}

/// Only workers that serve its queue can claim a run.
pub async fn a_run_is_given_to_those_who_serve_its_queue(case: Case) {
    let run = start_in(&case, "gpu").await;
    let before = case.view(run).await;
    let (usual, other) = (case.join("wf").await, case.join_queues("wf", &["cpu", "gpu2", "gp"]).await);
    case.clock.advance("1h");
    usual.claim_nothing().await;
    other.claim_nothing().await;
    assert_eq!(case.view(run).await, before);
    assert_eq!(case.join_queues("wf", &["cpu", "gpu"]).await.claim_one().await.run, run);
}

/// A worker that serves only other queues cannot claim runs of the default queue.
pub async fn the_default_queue_is_a_queue_as_others(case: Case) {
    let run = case.start("wf").await;
    case.join_queues("wf", &["gpu"]).await.claim_nothing().await;
    let view = case.view(run).await;
    assert_eq!((&*view.queue, view.priority), (QUEUE_DEFAULT, 0));
    assert_eq!(case.join_queues("wf", &[QUEUE_DEFAULT]).await.claim_one().await.run, run);
}

/// Serving a queue is not enough: the worker needs the code too.
pub async fn a_worker_of_the_queue_needs_the_code(case: Case) {
    start_in(&case, "gpu").await;
    case.join_queues("other", &["gpu"]).await.claim_nothing().await;
}

/// Queue and priority are on the run, in lists, and in the event that its history begins with.
pub async fn queue_and_priority_are_on_the_run(case: Case) {
    let start = Start { priority: 7, ..case.new_queued_start("wf", "gpu") };
    case.try_start(start.clone()).await.unwrap();
    let view = case.view(start.run).await;
    assert_eq!((&*view.queue, view.priority), ("gpu", 7));
    let listed = case.world.runs(RunQuery { limit: 1, ..RunQuery::default() }).await.unwrap().runs;
    assert_eq!(listed, [view]);
    let history = case.world.history(start.run, 0, 1).await.unwrap();
    assert!(matches!(&history[0].events[0], Event::RunStarted(started)
        if *started.queue == *"gpu" && started.priority == 7));
}

/// One claim returns runs of all the worker's queues, the longest ready first.
pub async fn a_claim_brings_runs_of_all_the_workers_queues(case: Case) {
    let mut expected = Vec::new();
    for queue in ["b", "a", QUEUE_DEFAULT, "b", "c"] {
        expected.push(start_in(&case, queue).await);
        case.clock.advance("1s");
    }
    let worker = case.join_queues("wf", &["a", QUEUE_DEFAULT, "b"]).await;
    assert_eq!(worker.claim_runs().await, expected[..4]);
}

/// A worker that serves no queue gets only runs that need no code.
pub async fn a_worker_without_queues_gets_what_needs_no_code(case: Case) {
    let (_, doomed) = (case.start("wf").await, start_in(&case, "gpu").await);
    let worker = case.join_queues("wf", &[]).await;
    worker.claim_nothing().await;
    case.terminate(doomed).await;
    assert_eq!(worker.claim_one().await.run, doomed);
}

/// Every worker can claim a run that needs no code, in any queue.
pub async fn a_run_that_needs_no_code_has_no_queue(case: Case) {
    let run = start_in(&case, "gpu").await;
    case.cancel(run).await;
    assert_eq!(case.join("wf").await.claim_one().await.run, run);
    let (waiting, _) = parked(&case, wait()).await;
    case.terminate(waiting).await;
    case.clock.advance("1s");
    assert_eq!(case.join("other").await.claim_one().await.run, waiting);
}

/// An overdue run can be claimed to be ended, in any queue.
pub async fn an_overdue_run_has_no_queue(case: Case) {
    let start = Start { deadline: Some(case.later(1)), ..case.new_queued_start("wf", "gpu") };
    case.try_start(start.clone()).await.unwrap();
    let worker = case.join("wf").await;
    case.clock.advance_to(case.later(1).plus(DEADLINE_GRACE));
    worker.claim_nothing().await;
    let claimed = worker.claim_overdue().await;
    assert_eq!(
        claimed.iter().map(|claimed| (claimed.run, claimed.is_overdue)).collect::<Vec<_>>(),
        [(start.run, true)]
    );
}

/// A run that was woken by a message or a timer is ready in its queue.
pub async fn a_woken_run_stands_in_its_queue(case: Case) {
    let usual = case.join("wf").await;
    let (messaged, first) = parked(&case, wait()).await;
    let (due, second) = parked(&case, wait_until(case.later(60))).await;
    case.send_payload(messaged, "x").await;
    case.clock.advance("2m");
    usual.claim_nothing().await;
    first.leave().await;
    assert_eq!(second.claim_runs().await, [messaged, due]);
}

/// A run whose worker released it or crashed is ready in its queue.
pub async fn a_run_that_was_let_go_stands_in_its_queue(case: Case) {
    let (released, worker) = parked(&case, Then::Release).await;
    let queues = worker.queues.clone();
    worker.leave().await;
    let doomed = case.join_with(case.other_handle().await, Join { queues, ..case.new_join(&[("wf", 1)]) });
    let doomed = doomed.await;
    assert_eq!(doomed.claim_one().await.run, released);
    case.crash(doomed).await;
    let usual = case.join("wf").await;
    assert_eq!(usual.takeover().await, 1);
    usual.claim_nothing().await;
    assert_eq!(case.join_queues("wf", &["gpu"]).await.claim_one().await.run, released);
}

/// Another build can claim a stuck run only if it serves the queue.
pub async fn a_stuck_run_is_tried_by_those_who_serve_its_queue(case: Case) {
    let (run, worker) = parked(&case, stuck()).await;
    let elsewhere = case.join_build("wf", "build-2").await;
    elsewhere.claim_nothing().await;
    let queues = worker.queues.clone();
    let join = Join { build: "build-3".into(), queues, ..case.new_join(&[("wf", 1)]) };
    let mended = case.join_with(case.world.clone(), join).await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    assert_eq!(mended.claim_one().await.run, run);
}

/// Only other builds that serve its queue can claim a stuck run, joined before or after.
pub async fn a_stuck_run_is_given_to_other_builds_that_serve_its_queue(case: Case) {
    let join = Join { build: "build-2".into(), ..case.new_join(&[("wf", 1)]) };
    let earlier = Join { queues: [std::sync::Arc::from("gpu")].into(), ..join };
    let earlier = case.join_with(case.world.clone(), earlier).await;
    let (run, _worker) = parked(&case, stuck()).await;
    case.join_build("wf", "build-3").await.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    assert_eq!(earlier.claim_one().await.run, run);
}

/// A child is in the queue that its start names, not in that of its parent.
pub async fn a_child_stands_in_the_queue_of_its_start(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let mut child = case.new_child(parent.run, 0, "wf");
    child.start = Start { queue: "gpu".into(), priority: 3, ..child.start };
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    worker.claim_nothing().await;
    let claimed = case.join_queues("wf", &["gpu"]).await.claim_one().await;
    assert_eq!(claimed.run, child.start.run);
    assert_eq!(case.view(claimed.run).await.priority, 3);
}

/// A child with an invalid queue is refused, and its parent gets the refusal.
pub async fn a_child_in_a_bad_queue_is_refused(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let mut child = case.new_child(parent.run, 0, "wf");
    child.start.queue = "q".repeat(NAME_BYTES_MAX + 1).into();
    worker.commit_done(case.turn(&parent).steps(1).child(child.clone())).await;
    assert_refused!(case.world.run(child.start.run).await, NotFound);
    let bodies = case.inbox_bodies(parent.run).await;
    assert!(matches!(&bodies[..], [outlast_core::MessageBody::Refused { .. }]), "{bodies:?}");
}

/// A turn that starts its run puts it into the queue that the start names.
pub async fn a_turn_from_a_start_keeps_the_queue(case: Case) {
    let worker = case.join_queues("wf", &["gpu", "cpu"]).await;
    let start = Start { priority: 4, ..case.new_queued_start("wf", "gpu") };
    let run = start.run;
    worker.commit_done(case.starting_turn(start).then(Then::Release)).await;
    let view = case.view(run).await;
    assert_eq!((&*view.queue, view.priority), ("gpu", 4));
    case.join_queues("wf", &["cpu"]).await.claim_nothing().await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A known key returns its run, also if the start has another queue.
pub async fn a_key_returns_its_run_from_another_queue(case: Case) {
    let first = case.new_keyed_start("wf", "k", "in");
    case.try_start(first.clone()).await.unwrap();
    let key = Some(StartKey {
        text: "k".into(),
        digest: text("in").digest(),
        window: None,
        policy: Default::default(),
    });
    let second = Start { key, input: text("in"), priority: 1, ..case.new_queued_start("wf", "gpu") };
    assert_eq!(case.try_start(second).await, Ok(Started { run: first.run, is_new: false }));
    assert_eq!(&*case.view(first.run).await.queue, QUEUE_DEFAULT);
}

/// Names of queues are compared byte by byte.
pub async fn queues_are_compared_exactly(case: Case) {
    let names = ["gpu", "GPU", "gpu ", "gpü", "g\0pu", "%", "'"];
    let mut runs = Vec::new();
    for name in names {
        runs.push(start_in(&case, name).await);
    }
    for (name, run) in names.into_iter().zip(runs) {
        assert_eq!(case.view(run).await.queue, name.into());
        assert_eq!(case.join_queues("wf", &[name]).await.claim_one().await.run, run, "{name:?}");
    }
}

/// A start in a queue whose name is empty or too long is refused and changes nothing.
pub async fn a_start_in_a_bad_queue_is_refused(case: Case) {
    let longest = "q".repeat(NAME_BYTES_MAX);
    assert!(case.try_start(case.new_queued_start("wf", &longest)).await.is_ok());
    for queue in [String::new(), format!("{longest}q")] {
        let (bad, good) = (case.new_queued_start("wf", &queue), case.new_start("wf"));
        let turn = case.starting_turn(bad.clone());
        let answers = case.world.start(vec![bad.clone(), good.clone()]).await.unwrap();
        assert!(answers[1].is_ok(), "its neighbour is left alone");
        let worker = case.join_queues("wf", &["gpu"]).await;
        if queue.is_empty() {
            assert_refused!(answers[0].clone(), Invalid);
            assert_refused!(worker.commit(turn).await, Invalid);
        } else {
            assert_refused!(answers[0].clone(), Limit);
            assert_refused!(worker.commit(turn).await, Limit);
        }
        assert_refused!(case.world.run(bad.run).await, NotFound);
    }
}

/// A queued step may have as long a name as any step.
pub async fn a_queued_step_may_have_the_longest_name(case: Case) {
    let longest = "s".repeat(NAME_BYTES_MAX);
    assert!(case.try_start(case.new_start(&workflow_of_step(&longest))).await.is_ok());
    let longer = case.new_start(&workflow_of_step(&format!("{longest}s")));
    assert_refused!(case.try_start(longer).await, Limit);
}

/// A worker that serves too many queues, or one with an invalid name, cannot join.
pub async fn a_worker_of_bad_queues_does_not_join(case: Case) {
    let many = |count: usize| (0..count).map(|queue| format!("q-{queue}").into()).collect();
    let join = |queues| Join { queues, ..case.new_join(&[("wf", 1)]) };
    assert!(case.world.join(join(many(QUEUES_MAX))).await.is_ok());
    assert_refused!(case.world.join(join(many(QUEUES_MAX + 1))).await, Limit);
    assert_refused!(case.world.join(join([std::sync::Arc::from("")].into())).await, Invalid);
    let long = std::sync::Arc::from("q".repeat(NAME_BYTES_MAX + 1));
    assert_refused!(case.world.join(join([long].into())).await, Limit);
    assert_eq!(case.world.workers().await.unwrap().len(), 1);
}

/// The list of workers shows the queues of each.
pub async fn workers_show_their_queues(case: Case) {
    case.join("wf").await;
    case.join_queues("wf", &["gpu \"1\"", QUEUE_DEFAULT]).await;
    case.join_queues("wf", &[]).await;
    let workers = case.world.workers().await.unwrap();
    let queues: Vec<_> = workers.into_iter().map(|worker| worker.queues).collect();
    assert_eq!(queues, [vec![QUEUE_DEFAULT], vec!["gpu \"1\"", QUEUE_DEFAULT], vec![]]);
}

/// A claim returns when the next run in the worker's queues is due.
pub async fn a_claim_returns_when_its_queues_are_due(case: Case) {
    for (queue, seconds) in [("a", 10), ("b", 20), ("b", 30)] {
        let not_before = Some(case.later(seconds));
        case.try_start(Start { not_before, ..case.new_queued_start("wf", queue) }).await.unwrap();
    }
    let due = async |queues: &[&str]| {
        let worker = case.join_queues("wf", queues).await;
        worker.work(worker.request()).await.next_due
    };
    assert_eq!(due(&["b", "c"]).await, Some(case.later(20)));
    assert_eq!(due(&["a", "b"]).await, Some(case.later(10)));
    assert_eq!(due(&["c"]).await, None);
}

/// Runs can be listed by their queue.
pub async fn runs_are_listed_by_queue(case: Case) {
    let mut runs = Vec::new();
    for queue in ["gpu", QUEUE_DEFAULT, "gpu", "cpu"] {
        runs.push(start_in(&case, queue).await);
    }
    let query = |queue: &str, limit| RunQuery {
        queue: Some(queue.into()),
        order: ListOrder::OldestFirst,
        limit,
        ..RunQuery::default()
    };
    assert_eq!(case.listed(query("gpu", 10)).await, [runs[0], runs[2]]);
    assert_eq!(case.listed(query("gpu", 1)).await, [runs[0]]);
    assert_eq!(case.listed(query("none", 10)).await, []);
    let stuck = RunQuery { statuses: vec![Status::Stuck], ..query("gpu", 10) };
    assert_eq!(case.listed(stuck).await, []);
}

/// Lists leave queued steps out, unless they are requested or their workflow is.
pub async fn lists_leave_queued_steps_out(case: Case) {
    let mut runs = Vec::new();
    for workflow in ["step:resize", "stepping", "step:resize", "a", "step:resize"] {
        runs.push(case.start(workflow).await);
    }
    let plain = RunQuery { order: ListOrder::OldestFirst, limit: 10, ..RunQuery::default() };
    assert_eq!(case.listed(plain.clone()).await, [runs[1], runs[3]]);
    let pending = RunQuery { statuses: vec![Status::Pending], ..plain.clone() };
    assert_eq!(case.listed(pending).await, [runs[1], runs[3]]);
    let all = RunQuery { queued_steps: QueuedSteps::Listed, ..plain.clone() };
    assert_eq!(case.listed(all).await, runs);
    let named = RunQuery { workflow: Some("step:resize".into()), ..plain.clone() };
    assert_eq!(case.listed(named).await, [runs[0], runs[2], runs[4]]);
    let (mut after, mut found) = (None, Vec::new());
    // A page may be short, but names the next one.
    for _ in 0..=runs.len() {
        let page = case.world.runs(RunQuery { after, limit: 1, ..plain.clone() }).await.unwrap();
        found.extend(page.runs.iter().map(|run| run.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, [runs[1], runs[3]]);
}

/// Lists leave runs of built-in workflows out, unless they are requested or their workflow is.
pub async fn lists_leave_built_in_runs_out(case: Case) {
    let mut runs = Vec::new();
    for workflow in ["outlast:schedule", "outlasting", "step:resize", "a", "outlast:schedule"] {
        runs.push(case.start(workflow).await);
    }
    let plain = RunQuery { order: ListOrder::OldestFirst, limit: 10, ..RunQuery::default() };
    assert_eq!(case.listed(plain.clone()).await, [runs[1], runs[3]]);
    let pending = RunQuery { statuses: vec![Status::Pending], ..plain.clone() };
    assert_eq!(case.listed(pending).await, [runs[1], runs[3]]);
    let built_in = RunQuery { built_in: BuiltInRuns::Listed, ..plain.clone() };
    assert_eq!(case.listed(built_in.clone()).await, [runs[0], runs[1], runs[3], runs[4]]);
    assert_eq!(case.listed(RunQuery { queued_steps: QueuedSteps::Listed, ..built_in }).await, runs);
    let named = RunQuery { workflow: Some("outlast:schedule".into()), ..plain };
    assert_eq!(case.listed(named).await, [runs[0], runs[4]]);
}

/// A claim from a queue is as fast when other queues contain many ready runs.
pub async fn runs_of_other_queues_are_not_in_the_way(case: Case) {
    let starts: Vec<Start> = (0..1_000).map(|_| case.new_queued_start("wf", "crowd")).collect();
    case.world.start(starts).await.unwrap();
    let run = start_in(&case, "gpu").await;
    let worker = case.join_queues("wf", &["gpu"]).await;
    assert_eq!(worker.claim_one().await.run, run);
}
