//! Commits: all or nothing, each turn by itself.

use outlast_core::{Committed, Status, Then, Wait};

use super::turn_ext::{TurnExt, stuck, wait, wait_until};
use super::{Case, assert_refused};

/// A turn that holds on adds its events, and the session keeps holding the run.
pub async fn a_turn_that_holds_on_keeps_the_run(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    worker.commit_done(turn.clone()).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(worker.session)));
    let held = case.world.held(worker.session).await.unwrap();
    let seq = turn.seq + turn.events.len() as u64;
    assert_eq!(
        held,
        [outlast_core::HeldRun {
            run,
            turn: turn.id,
            seq,
            session: worker.session,
            columns: turn.columns.after.clone()
        }]
    );
}

/// A turn with which a run waits stores its waits, and releases the run.
pub async fn a_turn_that_waits_releases_the_run(case: Case) {
    let worker = case.join("wf").await;
    let at = case.clock.now().plus(std::time::Duration::from_secs(60));
    let waits = vec![
        Wait::Timer { op: 0, until: at },
        Wait::Hook { op: 1, name: "h".into(), until: None, token: None },
        Wait::Retry { op: 2, name: "charge".into(), until: at },
    ];
    let run = case.parked(&worker, Then::Wait { wake_at: Some(at), waits: waits.clone() }).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.wake_at), (Status::Waiting, None, Some(at)));
    assert_eq!(view.waits, waits);
    assert_eq!(worker.held().await, 0);
}

/// A run that is claimed after a wait has no waits.
pub async fn a_claimed_run_waits_for_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait_until(case.clock.now())).await;
    worker.claim_one().await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.wake_at, view.waits), (Status::Running, None, vec![]));
}

/// A released run is ready at once, for everyone, and counts no crash.
pub async fn a_released_run_is_ready_at_once_and_counts_no_crash(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(Then::Release);
    worker.commit_done(turn).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Pending, None));
    let claimed = other.claim_one().await;
    assert_eq!((claimed.run, claimed.columns.crashes), (run, 0));
}

/// A repeated turn that is still the run's last answers as before, and adds nothing twice.
pub async fn a_repeated_turn_answers_as_before(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let turn = case.turn(&worker.claim_one().await).steps(2);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    assert_eq!(case.kinds(run).await, ["run_started", "step_started", "step_started"]);
}

/// A repeated turn is recognised after it has released its run.
pub async fn a_turn_repeated_after_it_let_go_answers_as_before(case: Case) {
    let worker = case.join("wf").await;
    for then in [wait(), Then::Release, stuck()] {
        let run = case.start("wf").await;
        let claimed = worker.claim().await;
        let claimed = claimed.iter().find(|claimed| claimed.run == run).unwrap();
        let turn = case.turn(claimed).then(then);
        worker.commit_done(turn.clone()).await;
        let after = case.view(run).await;
        worker.commit_done(turn).await;
        assert_eq!(case.view(run).await, after);
    }
    let run = case.start("wf").await;
    let claimed = worker.claim().await;
    let turn = case.turn(claimed.iter().find(|claimed| claimed.run == run).unwrap()).completing("out");
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    assert_eq!(case.kinds(run).await, ["run_started", "run_completed"]);
}

/// A turn that is refused does not affect the others of its batch.
pub async fn a_refused_turn_leaves_its_neighbours_alone(case: Case) {
    let worker = case.join("wf").await;
    for _ in 0..3 {
        case.start("wf").await;
    }
    let turns: Vec<_> = worker.claim().await.iter().map(|claimed| case.turn(claimed).steps(1)).collect();
    let mut batch = turns.clone();
    batch[1].based_on = outlast_core::turn::BasedOn::Turn(outlast_core::TurnId::from_bits(case.id()));
    let answers = case.world.commit(worker.session, &batch).await.unwrap();
    assert_eq!((&answers[0], &answers[2]), (&Ok(Committed::Done), &Ok(Committed::Done)));
    assert_refused!(&answers[1], Fenced);
    assert_eq!(case.kinds(turns[1].run).await, ["run_started"]);
    assert_eq!(case.kinds(turns[2].run).await, ["run_started", "step_started"]);
}

/// A turn that is refused writes nothing at all.
pub async fn a_refused_turn_writes_nothing(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let claimed = worker.claim_one().await;
    let before = case.view(run).await;
    assert_refused!(other.commit(case.turn(&claimed).completing("stolen")).await, Fenced);
    assert_eq!(case.view(run).await, before);
    assert_eq!(case.kinds(run).await, ["run_started"]);
    assert_eq!(case.counts().await, [(Status::Running, 1)].into());
}

/// A turn that fires a timer is refused if it has not read a message that arrived before the timer was due.
pub async fn a_timer_does_not_fire_over_an_answer_given_in_time(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    case.clock.advance("1s");
    let due = case.clock.now();
    case.send_payload(run, "just in time").await;
    case.clock.advance("1s");
    let turn = case.turn(&claimed).steps(1).firing(due);
    assert_refused!(worker.commit(turn.clone()).await, Conflict);
    assert_eq!(case.kinds(run).await, ["run_started"]);
    worker.commit_done(turn.consuming(1)).await;
}

/// A message that arrived after a timer was due does not prevent the turn that fires it.
pub async fn a_timer_fires_before_an_answer_that_came_too_late(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    let due = case.clock.now();
    case.clock.advance("1us");
    case.send_payload(run, "too late").await;
    worker.commit_done(case.turn(&claimed).steps(1).firing(due)).await;
}

/// The end is final: the run has no holder, accepts no turn and no message, and cannot be claimed again.
pub async fn the_end_is_final(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let last = case.turn(&worker.claim_one().await).completing("out");
    case.clock.advance("1s");
    worker.commit_done(last.clone()).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.ended_at), (Status::Completed, None, Some(case.clock.now())));
    assert_refused!(worker.commit(case.turn_after(&last).steps(1)).await, Fenced);
    assert_refused!(case.try_send(case.new_message(run, "late")).await, Conflict);
    assert_refused!(case.world.resume(run).await, Conflict);
    case.clock.advance("1h");
    worker.claim_nothing().await;
    assert_eq!((worker.held().await, case.view(run).await), (0, view));
}

/// A run can end with unread messages.
pub async fn a_run_may_end_with_unread_messages(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    case.send_payload(run, "unread").await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    worker.claim_nothing().await;
    assert!(worker.work(worker.request()).await.unread.is_empty());
    let view = case.view(run).await;
    assert_eq!((view.sent, view.consumed), (1, 0));
}
