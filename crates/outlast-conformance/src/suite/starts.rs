//! Starting runs.

use outlast_core::limits::{BATCH_STARTS_MAX, NAME_BYTES_MAX};
use outlast_core::{Event, RunId, Started, Status};

use super::case::{BUILD, text};
use super::turn_ext::TurnExt;
use super::{Case, assert_refused};

/// A started run is pending, has no holder, and its history begins with its start.
pub async fn a_started_run_is_pending_and_its_history_begins(case: Case) {
    let start = outlast_core::Start { input: text("in"), ..case.new_start("wf") };
    assert_eq!(case.try_start(start.clone()).await, Ok(Started { run: start.run, is_new: true }));
    let view = case.view(start.run).await;
    assert_eq!((view.status, view.owner, &*view.workflow, view.version), (Status::Pending, None, "wf", 1));
    assert_eq!((view.created_at, view.updated_at), (case.clock.now(), case.clock.now()));
    let history = case.world.history(start.run, 0, 10).await.unwrap();
    assert_eq!(history, [start.first_turn(case.clock.now())]);
}

/// A repeated start with the same run id starts nothing, and returns the same result.
pub async fn a_repeated_start_returns_the_first_answer(case: Case) {
    let start = case.new_start("wf");
    let first = case.try_start(start.clone()).await;
    assert_eq!(case.try_start(start.clone()).await, first);
    assert_eq!(case.kinds(start.run).await, ["run_started"]);
    assert_eq!(case.counts().await, [(Status::Pending, 1)].into());
}

/// A start that is repeated after the run has continued changes nothing.
pub async fn a_start_repeated_after_the_run_ended_changes_nothing(case: Case) {
    let start = case.new_start("wf");
    let first = case.try_start(start.clone()).await;
    let worker = case.join("wf").await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    assert_eq!(case.try_start(start.clone()).await, first);
    assert_eq!(case.status(start.run).await, Status::Completed);
    worker.claim_nothing().await;
}

/// Each start of a batch has its own answer; a refused one does not affect the others.
pub async fn a_refused_start_leaves_its_neighbours_alone(case: Case) {
    let starts = [case.new_start("a"), case.new_start(&"n".repeat(NAME_BYTES_MAX + 1)), case.new_start("b")];
    let answers = case.world.start(starts.to_vec()).await.unwrap();
    assert_eq!(answers[0], Ok(Started { run: starts[0].run, is_new: true }));
    assert_refused!(&answers[1], Limit);
    assert_eq!(answers[2], Ok(Started { run: starts[2].run, is_new: true }));
    assert_refused!(case.world.run(starts[1].run).await, NotFound);
}

/// A name may be as long as the limit, and not longer.
pub async fn a_name_past_its_limit_is_refused(case: Case) {
    let longest = case.new_start(&"n".repeat(NAME_BYTES_MAX));
    assert!(case.try_start(longest).await.is_ok());
    let longer = case.new_start(&"n".repeat(NAME_BYTES_MAX + 1));
    assert_refused!(case.try_start(longer).await, Limit);
}

/// An unknown run is not found.
pub async fn an_unknown_run_is_not_found(case: Case) {
    let unknown = RunId::from_bits(case.id());
    assert_refused!(case.world.run(unknown).await, NotFound);
    assert_refused!(case.world.history(unknown, 0, 10).await, NotFound);
    assert_refused!(case.world.inbox(unknown, 0).await, NotFound);
    assert_refused!(case.world.resume(unknown).await, NotFound);
    assert_refused!(case.try_send(case.new_message(unknown, "x")).await, NotFound);
}

/// A turn from a start begins the run, and its session holds it.
pub async fn a_turn_from_a_start_begins_a_run_that_its_session_holds(case: Case) {
    let (worker, rival) = (case.join("wf").await, case.join("wf").await);
    let turn = case.starting_turn(case.new_start("wf")).steps(1);
    worker.commit_done(turn.clone()).await;
    let view = case.view(turn.run).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(worker.session)));
    let history = case.world.history(turn.run, 0, 10).await.unwrap();
    assert_eq!(history, [turn.record()]);
    assert_eq!(worker.held().await, 1);
    rival.claim_nothing().await;
    worker.commit_done(case.turn_after(&turn).completing("out")).await;
    assert_eq!(case.kinds(turn.run).await, ["run_started", "step_started", "run_completed"]);
}

/// A repeated turn from a start answers as before, and starts nothing twice.
pub async fn a_repeated_turn_from_a_start_answers_as_before(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(case.new_keyed_start("wf", "k", "in")).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.kinds(turn.run).await, ["run_started", "step_started"]);
    assert_eq!(case.counts().await, [(Status::Running, 1)].into());
}

/// A start may end, wait or be stuck in its first turn.
pub async fn a_run_may_end_in_the_turn_that_starts_it(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(case.new_start("wf")).completing("out");
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.status(turn.run).await, Status::Completed);
    assert_eq!((worker.held().await, case.counts().await), (0, [(Status::Completed, 1)].into()));
    worker.claim_nothing().await;
}

/// A run whose first turn is stuck is started nevertheless.
pub async fn a_run_that_is_stuck_in_the_turn_that_starts_it_has_begun(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(case.new_start("wf")).steps(1).then(super::turn_ext::stuck());
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.status(turn.run).await, Status::Stuck);
    let history = case.world.history(turn.run, 0, 10).await.unwrap();
    assert_eq!(history.len(), 1);
    assert!(matches!(history[0].events[..], [Event::RunStarted(_)]), "{history:?}");
    let other = case.join_build("wf", "build-2").await;
    let claimed = other.claim_one().await;
    assert_eq!((claimed.seq, claimed.is_fresh), (1, true));
    assert_ne!(&*other.build, BUILD);
}

/// One call starts no more than its limit, and then nothing at all.
pub async fn a_batch_of_starts_has_a_limit(case: Case) {
    let mut starts: Vec<_> = (0..=BATCH_STARTS_MAX).map(|_| case.new_start("wf")).collect();
    assert_refused!(case.world.start(starts.clone()).await, Limit);
    assert!(case.counts().await.is_empty());
    starts.pop();
    assert_eq!(case.world.start(starts).await.unwrap().len(), BATCH_STARTS_MAX);
}

/// The id that a world derives for a run depends only on the given random bits and the key.
pub async fn a_run_starts_with_the_id_that_its_world_makes(case: Case) {
    let bits = [case.id(), case.id()];
    for key in [None, Some("k")] {
        let ids = bits.map(|bits| case.world.run_id(key, bits));
        assert_eq!(ids, bits.map(|bits| case.world.run_id(key, bits)), "the same every time");
        assert_ne!(ids[0], ids[1]);
    }
    let run = case.world.run_id(None, bits[0]);
    let started = case.try_start(outlast_core::Start { run, ..case.new_start("wf") }).await.unwrap();
    assert_eq!((started.run, case.view(run).await.id), (run, run));
}
