//! Failed builds: a run that one build leaves stuck is continued by any other build.

use outlast::core::OpNumber;
use outlast::prelude::*;
use outlast::{Because, ErrorKind, Status};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    forty_runs_continue_after_a_rollback_and_explain_says_why_they_wait,
    runs_that_one_build_leaves_stuck_continue_with_a_build_that_joined_before,
    a_build_that_failed_gets_the_run_again_after_progress,
    without_progress_the_run_is_stuck_again_for_the_build_that_failed,
    resume_lets_a_failed_build_try_again,
    a_held_or_ended_run_is_not_resumed,
    a_run_that_every_joined_build_failed_to_continue_says_so,
    a_run_that_rests_says_when_it_is_retried,
    a_waiting_run_says_which_builds_may_not_continue_it,
}

/// Waits for an hour, and then is stuck.
#[workflow(name = "trip")]
async fn broken(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    panic!("this build is broken");
}

#[workflow(name = "trip")]
async fn fixed(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    ctx.hook("go").await
}

#[workflow]
async fn occupies(ctx: Context) -> Result<String, Error> {
    ctx.blocked("occupied").await
}

async fn runs_that_one_build_leaves_stuck_continue_with_a_build_that_joined_before(engine: TestEngine) {
    // The fixed build is joined all the time, and has no room for other runs until the test lets it.
    let builder = engine.builder().session_time("1d").live_runs(1);
    let _fixed = builder.build("b").register((fixed, occupies)).start().await.unwrap();
    let occupied = engine.client.start(occupies, ()).await.unwrap();
    engine.steps.wait_for_log("began occupied", 1).await;
    let _broken = engine.builder().session_time("1d").build("a").register(broken).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(engine.client.start(fixed, ()).await.unwrap());
    }
    for run in &runs {
        engine.wait_for_status(run.id(), Status::Waiting).await;
    }
    engine.clock.advance("1h");
    for run in &runs {
        engine.wait_for_status(run.id(), Status::Stuck).await;
        assert_eq!(engine.stuck(run.id()).await.build, "a");
        let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
        assert!(sentence.contains("different build (`b`) is joined"), "{sentence}");
    }
    engine.steps.open("occupied");
    occupied.output().await.unwrap();
    for run in runs {
        engine.wait_for_status(run.id(), Status::Waiting).await;
        engine.send(run.id(), "go", 7).await;
        assert_eq!(run.output().await.unwrap(), 7);
    }
}

async fn forty_runs_continue_after_a_rollback_and_explain_says_why_they_wait(engine: TestEngine) {
    let good = engine.worker_of_build("good", fixed).await;
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(engine.client.start(fixed, ()).await.unwrap());
    }
    engine.settle().await;
    good.stop().await.unwrap();
    let bad = engine.worker_of_build("bad", broken).await;
    engine.advance("1h").await;
    for run in &runs {
        assert_eq!(engine.stuck(run.id()).await.build, "bad");
        let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
        for part in [
            "Stuck (panicked): build `bad` cannot continue",
            "this build is broken",
            "different build is joined",
        ] {
            assert!(sentence.contains(part), "{part} is not in: {sentence}");
        }
    }
    bad.stop().await.unwrap();
    let _rolled_back = engine.worker_of_build("good", fixed).await;
    engine.settle().await;
    for run in &runs {
        assert_eq!(engine.status(run.id()).await, Status::Waiting);
        let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
        assert!(sentence.contains("hook `go`") && !sentence.contains("bad"), "{sentence}");
        engine.send(run.id(), "go", 7).await;
    }
    engine.settle().await;
    for run in runs {
        assert_eq!(run.output().await.unwrap(), 7);
    }
}

/// A run that build `a` left stuck.
async fn left_stuck(engine: &TestEngine) -> RunHandle<u32> {
    let run = engine.client.start(fixed, ()).await.unwrap();
    let worker = engine.worker_of_build("a", broken).await;
    engine.advance("1h").await;
    worker.stop().await.unwrap();
    assert_eq!(engine.stuck(run.id()).await.build, "a");
    run
}

async fn a_build_that_failed_gets_the_run_again_after_progress(engine: TestEngine) {
    let run = left_stuck(&engine).await;
    let worker = engine.worker_of_build("b", fixed).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    assert!(engine.view(run.id()).await.failed_builds.is_empty());
    let _rolled_back = engine.worker_of_build("a", fixed).await;
    engine.send(run.id(), "go", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn without_progress_the_run_is_stuck_again_for_the_build_that_failed(engine: TestEngine) {
    #[workflow(name = "trip")]
    async fn slow(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1h").await?;
        ctx.blocked("slow").await.map(|_| 7)
    }
    let run = left_stuck(&engine).await;
    let hold = engine.faults.hold(super::faulty_world::Call::Commit);
    let worker = engine.worker_of_build("b", slow).await;
    hold.wait_for_call().await;
    worker.crash();
    engine.clock.advance(super::test_engine::SESSION);
    let _rolled_back = engine.worker_of_build("a", broken).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.build, "a");
    assert!(engine.view(run.id()).await.failed_builds.contains("a"));
}

async fn resume_lets_a_failed_build_try_again(engine: TestEngine) {
    let run = left_stuck(&engine).await;
    let _worker = engine.worker_of_build("a", fixed).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Stuck);
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    // A waiting run may be resumed too: then every build may continue it.
    engine.client.resume(run.id()).await.unwrap();
    engine.send(run.id(), "go", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_held_or_ended_run_is_not_resumed(engine: TestEngine) {
    #[workflow]
    async fn held(ctx: Context) -> Result<String, Error> {
        ctx.blocked("held").await
    }
    let _worker = engine.worker(held).await;
    let run = engine.client.start(held, ()).await.unwrap();
    engine.steps.wait_for_log("began held", 1).await;
    let error = engine.client.resume(run.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    engine.steps.open("held");
    run.output().await.unwrap();
    let error = engine.client.resume(run.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

async fn a_run_that_every_joined_build_failed_to_continue_says_so(engine: TestEngine) {
    let run = left_stuck(&engine).await;
    let alone = engine.worker_of_build("a", broken).await;
    engine.settle().await;
    let explained = engine.client.explain(run.id()).await.unwrap();
    let Because::Stuck { failed_builds, other_builds, .. } = &explained.because else {
        panic!("{explained:?}")
    };
    assert_eq!((&failed_builds[..], &other_builds[..]), (&["a".to_owned()][..], &[][..]));
    assert!(
        explained.sentence.contains("No worker with a different build is joined"),
        "{}",
        explained.sentence
    );
    let second = engine.worker_of_build("c", broken).await;
    engine.settle().await;
    let explained = engine.client.explain(run.id()).await.unwrap();
    assert!(
        explained.sentence.contains("Builds `a` and `c` failed to continue it"),
        "{}",
        explained.sentence
    );
    second.stop().await.unwrap();
    alone.stop().await.unwrap();
}

async fn a_run_that_rests_says_when_it_is_retried(engine: TestEngine) {
    let run = left_stuck(&engine).await;
    for build in ["b", "c", "d", "e", "f", "g", "h", "i"] {
        let worker = engine.worker_of_build(build, broken).await;
        engine.settle().await;
        worker.stop().await.unwrap();
        assert_eq!(engine.stuck(run.id()).await.build, build);
    }
    let alone = engine.client.explain(run.id()).await.unwrap();
    assert!(alone.sentence.contains("no worker with a different build is joined"), "{}", alone.sentence);
    let _oldest = engine.worker_of_build("a", fixed).await;
    engine.settle().await;
    let rests = engine.client.explain(run.id()).await.unwrap();
    let Because::Stuck { other_builds, retry_at: Some(at), .. } = &rests.because else { panic!("{rests:?}") };
    assert_eq!((&other_builds[..], *at), (&["a".to_owned()][..], engine.time_after_begin("1h10m")));
    let expected = "the next retry is at 2030-01-01T01:10:00Z (in 10m), by a worker with a different build (`a`). Call \
                    `client.resume(run)` to retry at once.";
    assert!(rests.sentence.ends_with(expected), "{}", rests.sentence);
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
}

async fn a_waiting_run_says_which_builds_may_not_continue_it(engine: TestEngine) {
    #[workflow(name = "nap")]
    async fn nap(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1d").await
    }
    #[workflow(name = "nap")]
    async fn broken_nap(_ctx: Context) -> Result<(), Error> {
        panic!("this build is broken");
    }
    let worker = engine.worker_of_build("first", nap).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    // A message that adds no event when it is read.
    engine.client.wake_timer(run.id(), OpNumber(99)).await.unwrap();
    let failed = engine.worker_of_build("a", broken_nap).await;
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.build, "a");
    let worker = engine.worker_of_build("b", nap).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    let explained = engine.client.explain(run.id()).await.unwrap();
    let Because::Waits { failed_builds, workers: 0, .. } = &explained.because else {
        panic!("{explained:?}")
    };
    assert_eq!(failed_builds, &["a"]);
    assert!(explained.sentence.contains("Builds that failed to continue it (`a`)"), "{}", explained.sentence);
    engine.advance("2d").await;
    let explained = engine.client.explain(run.id()).await.unwrap();
    assert!(matches!(explained.because, Because::BuildsFailed { .. }), "{explained:?}");
    failed.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", nap).await;
    run.output().await.unwrap();
}
