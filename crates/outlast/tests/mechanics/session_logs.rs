//! What a worker logs about its sessions: takeovers, a lost session and the next join, runs that are handed back.

use outlast::core::WorldError;
use outlast::prelude::*;
use outlast::{Status, Worker};
use tracing::Level;

use super::faulty_world::Call;
use super::outages::Lines;
use super::test_engine::{SESSION, StepCalls, TestEngine, with_timeout};

#[workflow]
async fn asks(ctx: Context) -> Result<u32, Error> {
    ctx.hook::<u32>("answer").await
}

#[workflow]
async fn works(ctx: Context) -> Result<String, Error> {
    ctx.blocked("slow").await
}

/// A test with a worker that has joined, and the lines that are logged after that.
async fn with_lines(test: impl AsyncFnOnce(&TestEngine, Worker, &Lines)) {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let worker = engine.worker((asks, works)).await;
        engine.settle().await;
        lines.take();
        test(&engine, worker, &lines).await;
    })
    .await;
}

#[tokio::test]
async fn a_takeover_is_logged_with_the_number_of_runs() {
    with_lines(async |engine, worker, lines| {
        for _ in 0..2 {
            engine.client.start(works, ()).await.unwrap();
        }
        engine.steps.wait_for_log("began slow", 2).await;
        engine.crash(worker);
        let next = engine.worker((asks, works)).await;
        let [(Level::INFO, taken), (Level::INFO, joined)] = &lines.take()[..] else {
            panic!("{:#?}", lines.with_fields())
        };
        assert_eq!(taken, "took over 2 runs of workers that are gone");
        assert!(joined.starts_with("the worker joined memory `"), "{joined}");
        let session = next.session();
        let expected = format!("INFO took over 2 runs of workers that are gone session={session} runs=2");
        assert!(lines.with_fields().contains(&expected), "{:#?}", lines.with_fields());
        next.beat().await.unwrap();
        assert_eq!(lines.take(), [], "nothing more was taken over");
    })
    .await;
}

#[tokio::test]
async fn a_lost_session_is_logged_once_with_its_cause_and_so_is_the_next_join() {
    with_lines(async |engine, worker, lines| {
        let lost = worker.session();
        engine.world.leave(lost).await.unwrap();
        let run = engine.client.start(asks, ()).await.unwrap();
        engine.wait_for_status(run.id(), Status::Waiting).await;
        let [(Level::WARN, said), (Level::INFO, rejoined)] = &lines.take()[..] else {
            panic!("{:#?}", lines.with_fields())
        };
        assert_eq!(
            said,
            &format!(
                "session lost, rejoining: session {lost} is gone: it left or was taken over; join again"
            )
        );
        assert!(rejoined.starts_with("the worker rejoined memory `"), "{rejoined}");
        assert!(
            lines.with_fields().iter().any(|line| line.ends_with(&format!("session={}", worker.session())))
        );
        worker.stop().await.unwrap();
        assert_eq!(lines.take(), [], "a stop is not logged");
    })
    .await;
}

#[tokio::test]
async fn handing_back_a_run_is_not_a_warning() {
    with_lines(async |engine, worker, lines| {
        // The world claims the run for the worker, and the answer is lost.
        engine.faults.lose_answer(Call::Claim, 0);
        let run = engine.client.start(asks, ()).after("1s").await.unwrap();
        engine.advance("1s").await;
        engine.advance("10s").await;
        engine.wait_for_status(run.id(), Status::Waiting).await;
        assert_eq!(engine.faults.left(), 0);
        let lines = lines.take();
        let handed_back: Vec<_> = lines.iter().filter(|(_, text)| text.contains("handing back")).collect();
        assert!(matches!(handed_back[..], [(Level::INFO, _)]), "{lines:#?}");
        let warnings: Vec<_> = lines.iter().filter(|(level, _)| *level == Level::WARN).collect();
        assert!(
            warnings.iter().all(|(_, text)| text.starts_with("the world is not available")),
            "{lines:#?}"
        );
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_run_that_the_worker_does_not_hold_any_more_is_not_a_warning() {
    with_lines(async |engine, worker, lines| {
        engine.faults.answer_each_turn(WorldError::Fenced("another worker holds the run".into()), false);
        let run = engine.client.start(asks, ()).after("1s").await.unwrap();
        engine.advance("1s").await;
        while engine.faults.left() > 0 {
            tokio::task::yield_now().await;
        }
        engine.settle().await;
        let [(Level::INFO, said)] = &lines.take()[..] else { panic!("{:#?}", lines.with_fields()) };
        assert_eq!(said, "stopped working on a run that this worker does not hold any more");
        let fields = format!("run={} error=another worker holds the run omitted=0", run.id());
        assert!(lines.with_fields().iter().any(|line| line.ends_with(&fields)), "{:#?}", lines.with_fields());
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_stops_and_its_successor_log_no_warning() {
    with_lines(async |engine, worker, lines| {
        let run = engine.client.start(asks, ()).await.unwrap();
        engine.wait_for_status(run.id(), Status::Waiting).await;
        worker.stop().await.unwrap();
        engine.clock.advance(SESSION);
        let next = engine.worker((asks, works)).await;
        engine.send(run.id(), "answer", 7).await;
        assert_eq!(run.output().await.unwrap(), 7);
        next.stop().await.unwrap();
        let lines = lines.take();
        assert!(lines.iter().all(|(level, _)| *level == Level::INFO), "{lines:#?}");
        assert_eq!(lines.len(), 1, "only the join: {lines:#?}");
    })
    .await;
}
