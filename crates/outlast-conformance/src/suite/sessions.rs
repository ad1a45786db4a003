//! Sessions: joined, renewed, left.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use outlast_core::{Join, Report, Status, Then};

use super::Case;
use super::turn_ext::{TurnExt, wait};

/// The joined workers are listed in order of their sessions, with what they hold.
pub async fn the_joined_workers_are_listed(case: Case) {
    let joined_at = case.clock.now();
    let (first, second) = (case.join("wf").await, case.join_build("wf", "build-2").await);
    case.start("wf").await;
    second.claim_one().await;
    case.clock.advance("1s");
    let workers = case.world.workers().await.unwrap();
    let sessions: Vec<_> = workers.iter().map(|worker| (worker.session, worker.held)).collect();
    assert_eq!(sessions, [(first.session, 0), (second.session, 1)]);
    let view = &workers[1];
    assert_eq!((&*view.host, view.pid, &*view.build), ("host", 7, "build-2"));
    assert_eq!(view.code, *second.code);
    assert_eq!((view.joined_at, view.expires_at), (joined_at, joined_at.plus(Duration::from_secs(10))));
    first.leave().await;
    assert_eq!(case.world.workers().await.unwrap().len(), 1);
}

/// A repeated join changes nothing.
pub async fn a_repeated_join_changes_nothing(case: Case) {
    let join = case.new_join(&[("wf", 1)]);
    let worker = case.join_with(case.world.clone(), join.clone()).await;
    case.start("wf").await;
    worker.claim_one().await;
    let before = case.world.workers().await.unwrap();
    case.world.join(join).await.unwrap();
    assert_eq!(case.world.workers().await.unwrap(), before);
}

/// A beat renews the session for its full time, and returns the number of runs that it holds.
pub async fn a_beat_renews_the_session(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    worker.claim_one().await;
    case.clock.advance("9s");
    assert_eq!(worker.held().await, 1);
    let expires_at = case.world.workers().await.unwrap()[0].expires_at;
    assert_eq!(expires_at, case.clock.now().plus(Duration::from_secs(10)));
    case.clock.advance("9s");
    let other = case.join("wf").await;
    assert_eq!(other.takeover().await, 0);
    assert_eq!(worker.held().await, 1);
}

/// `held` returns the runs of a session in order, with each run's last turn.
pub async fn a_session_is_told_what_it_holds(case: Case) {
    let worker = case.join("wf").await;
    for _ in 0..3 {
        case.start("wf").await;
    }
    let claimed = worker.claim().await;
    let turn = case.turn(&claimed[1]).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn(&claimed[2]).then(wait())).await;
    let held = case.world.held(worker.session).await.unwrap();
    let held: Vec<_> = held.iter().map(|held| (held.run, held.turn, held.session)).collect();
    let session = worker.session;
    assert_eq!(held, [(claimed[0].run, claimed[0].turn, session), (claimed[1].run, turn.id, session)]);
    assert_eq!(worker.held().await, 2);
}

/// When a session leaves, its runs are ready for others at once, and no crash is counted.
pub async fn who_leaves_makes_its_runs_ready_without_a_crash(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let run = case.start("wf").await;
    worker.claim_one().await;
    worker.leave().await;
    worker.leave().await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.crashes), (Status::Pending, None, 0));
    let claimed = other.claim_one().await;
    assert_eq!((claimed.run, claimed.columns.crashes), (run, 0));
    worker.leave().await;
    assert_eq!(case.view(run).await.owner, Some(other.session), "a repeated leave takes nothing back");
}

/// An expired session works until it is taken over.
pub async fn expiry_alone_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    case.clock.advance("1d");
    worker.commit_done(turn.clone()).await;
    assert_eq!(worker.held().await, 1);
    assert_eq!(case.join("wf").await.takeover().await, 0, "the beat renewed it");
    worker.commit_done(case.turn_after(&turn).then(Then::Release)).await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A session lasts as long as it requested.
pub async fn a_session_lasts_as_long_as_it_asked_for(case: Case) {
    let patient = Join { time: Duration::from_secs(3_600), ..case.new_join(&[("wf", 1)]) };
    case.join_with(case.world.clone(), patient).await;
    case.join("wf").await;
    case.clock.advance("11s");
    let other = case.join("wf").await;
    other.takeover().await;
    assert_eq!(case.world.workers().await.unwrap().len(), 2, "only the ten-second session is gone");
}

/// A beat can be called from a thread outside of any async runtime.
pub async fn a_beat_works_outside_any_runtime(case: Case) {
    struct UnparkWaker(Thread);
    impl Wake for UnparkWaker {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let worker = case.join("wf").await;
    let world = case.world.clone();
    let beat = std::thread::spawn(move || {
        let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
        let report = Report::default();
        let mut beat = std::pin::pin!(world.beat(worker.session, &report, &[]));
        loop {
            match beat.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(beat) => return beat,
                Poll::Pending => std::thread::park(),
            }
        }
    });
    assert_eq!(beat.join().unwrap().map(|beat| beat.held), Ok(0));
}
