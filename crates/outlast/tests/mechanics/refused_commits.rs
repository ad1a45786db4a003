//! A run whose turns the world refuses for a temporary reason: it is explained and logged, and stops no other run.

use outlast::core::{UncommittedRuns, WorldError};
use outlast::prelude::*;
use outlast::{Because, Status};
use tracing::Level;

use super::outages::Lines;
use super::test_engine::{StepCalls, TestEngine, with_timeout};

#[workflow]
async fn two_steps(ctx: Context, gate: String) -> Result<String, Error> {
    ctx.blocked(&gate).await?;
    ctx.note("last").await
}

const FULL: &str = "the disk is full; free some space, then work resumes by itself";

/// Starts a run whose first step ends, and waits until the world has refused the turn after that several times.
async fn start_refused(engine: &TestEngine) -> RunHandle<String> {
    let run = engine.client.start(two_steps, "refused".to_owned()).await.unwrap();
    engine.steps.wait_for_log("began refused", 1).await;
    engine.faults.refuse_turns_of(run.id(), WorldError::Unavailable(FULL.into()));
    engine.steps.open("refused");
    engine.faults.wait_for_refused_turns(run.id(), 10).await;
    run
}

#[tokio::test(start_paused = true)]
async fn a_refused_run_is_explained_by_the_error_and_not_by_its_steps() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let worker = engine.worker(two_steps).await;
        let run = start_refused(&engine).await;
        let why = run.explain().await.unwrap();
        assert_eq!(why.status, Status::Running);
        assert_eq!(why.not_committed.as_deref(), Some(FULL));
        let Because::Held { attempts, .. } = &why.because else { panic!("{:?}", why.because) };
        assert!(attempts.is_empty(), "{attempts:?}");
        let expected =
            format!("Its last turn is not committed, and is tried again until the world accepts it: {FULL}.");
        assert!(why.sentence.ends_with(&expected), "{}", why.sentence);
        assert!(!why.sentence.contains("attempt"), "{}", why.sentence);

        // A client in another process reads it from the report of the worker.
        worker.beat().await.unwrap();
        let reported = engine.client.workers().await.unwrap().remove(0).report.uncommitted;
        assert_eq!(reported, Some(UncommittedRuns::new(FULL, vec![run.id()])));

        engine.faults.accept_turns_of(run.id());
        assert_eq!(run.output().await.unwrap(), "last");
        assert_eq!(run.explain().await.unwrap().not_committed, None);
        worker.beat().await.unwrap();
        assert!(engine.client.workers().await.unwrap().remove(0).report.uncommitted.is_none());
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_run_stops_no_other_run_and_does_not_look_like_an_outage() {
    with_timeout(async {
        let lines = Lines::default();
        let _guard = tracing::subscriber::set_default(lines.clone());
        let engine = TestEngine::memory().await;
        let worker = engine.worker(two_steps).await;
        let refused = start_refused(&engine).await;
        lines.take();
        for number in 0..20 {
            let gate = format!("other {number}");
            engine.steps.open(&gate);
            let run = engine.client.start(two_steps, gate).await.unwrap();
            assert_eq!(run.output().await.unwrap(), "last");
        }
        engine.faults.wait_for_refused_turns(refused.id(), 15).await;
        engine.faults.accept_turns_of(refused.id());
        assert_eq!(refused.output().await.unwrap(), "last");
        worker.stop().await.unwrap();
        let [(Level::INFO, text)] = &lines.take()[..] else { panic!("{:#?}", lines.with_fields()) };
        assert!(text.starts_with("the turn of the run is committed, after "), "{text}");
        let all = lines.with_fields();
        let expected = format!("WARN a turn of the run is not committed, and is tried again: {FULL}");
        assert_eq!(all.iter().filter(|line| line.starts_with(&expected)).count(), 1, "{all:#?}");
        assert!(!all.iter().any(|line| line.contains("available")), "{all:#?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_stops_while_the_world_refuses_a_run() {
    with_timeout(async {
        let engine = TestEngine::memory().await;
        let worker = engine.builder().register(two_steps).drain("50ms").start().await.unwrap();
        let run = start_refused(&engine).await;
        worker.stop().await.unwrap();
        engine.faults.accept_turns_of(run.id());
        let worker = engine.worker(two_steps).await;
        assert_eq!(run.output().await.unwrap(), "last");
        worker.stop().await.unwrap();
    })
    .await;
}
