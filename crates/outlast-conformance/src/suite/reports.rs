//! Reports: what workers say of themselves.

use outlast_core::event::FORMAT;
use outlast_core::{Join, Report, RunId, UncommittedRuns, VERSION, WorkerStatus, WorkerView};

use super::{Case, TestWorker, assert_refused};

async fn view(case: &Case, worker: &TestWorker) -> WorkerView {
    let workers = case.world.workers().await.unwrap();
    workers.into_iter().find(|view| view.session == worker.session).unwrap()
}

fn full() -> Report {
    let mut report = Report::default();
    report.status = WorkerStatus::Draining;
    report.live = 3;
    report.attempts = 2;
    report.steps = [("resize".to_owned(), 1), ("say \"hé\"\0".to_owned(), 1)].into();
    report.waiting_futures = 4;
    report.turns = u64::MAX;
    report.replays = 6;
    report.completed = 7;
    report.failed = 8;
    report.uncommitted = Some(UncommittedRuns::new(
        "the disk is full",
        vec![RunId::from_bits(1), RunId::from_bits(u128::MAX)],
    ));
    report
}

/// A worker that has not beaten yet is shown as at its join.
pub async fn a_worker_that_has_not_beaten_reports_nothing(case: Case) {
    let worker = case.join("wf").await;
    let joined_at = case.clock.now();
    case.clock.advance("1s");
    let view = view(&case, &worker).await;
    assert_eq!((view.report, view.beat_at), (Report::default(), joined_at));
}

/// A beat stores the report unchanged, with its time.
pub async fn a_beat_keeps_the_report(case: Case) {
    let worker = case.join("wf").await;
    case.clock.advance("1s");
    case.world.beat(worker.session, &full(), &[]).await.unwrap();
    let beat_at = case.clock.now();
    case.clock.advance("1s");
    let view = view(&case, &worker).await;
    assert_eq!((view.report, view.beat_at), (full(), beat_at));
    assert!(view.joined_at < view.beat_at);
}

/// The last report counts, and each worker has its own.
pub async fn the_last_report_counts(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    case.world.beat(worker.session, &full(), &[]).await.unwrap();
    let mut last = Report::default();
    last.live = 1;
    case.world.beat(worker.session, &last, &[]).await.unwrap();
    assert_eq!(view(&case, &worker).await.report, last);
    assert_eq!(view(&case, &other).await.report, Report::default());
}

/// The report of a session that has ended is not stored.
pub async fn the_report_of_a_lost_session_is_not_kept(case: Case) {
    let worker = case.join("wf").await;
    worker.leave().await;
    assert_refused!(case.world.beat(worker.session, &full(), &[]).await, Fenced);
    assert!(case.world.workers().await.unwrap().is_empty());
}

/// A worker is shown with the version of the library that it was built with.
pub async fn a_worker_is_shown_with_the_version_of_its_library(case: Case) {
    let worker = case.join("wf").await;
    let version = view(&case, &worker).await.version.unwrap();
    assert!(version.starts_with(VERSION), "{version}");
}

/// A worker is shown with the format that its build can read.
pub async fn a_worker_is_shown_with_the_format_that_it_can_read(case: Case) {
    let newest = case.join("wf").await;
    let join = Join { format: 2, ..case.new_join(&[("wf", 1)]) };
    let older = case.join_with(case.world.clone(), join).await;
    assert_eq!(view(&case, &newest).await.format, FORMAT);
    assert_eq!(view(&case, &older).await.format, 2);
}
