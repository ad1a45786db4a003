//! Failed builds: a run that one build leaves stuck goes on with every other, by itself.

use outlast::core::OpNumber;
use outlast::prelude::*;
use outlast::{Because, ErrorKind, Status};

use super::rig::{Ask, Rig, on_every_world};

on_every_world! {
    forty_runs_go_on_after_a_bad_deploy_was_rolled_back_and_explain_says_why_they_wait,
    runs_that_one_build_leaves_stuck_go_on_with_a_build_that_joined_before,
    a_build_that_failed_gets_the_run_again_after_progress,
    without_progress_the_run_is_stuck_again_for_the_build_that_failed,
    resume_lets_a_failed_build_try_again,
    a_held_or_ended_run_is_not_resumed,
    a_run_that_every_joined_build_failed_to_continue_says_so,
    a_run_that_rests_says_when_it_is_retried,
    a_waiting_run_says_which_builds_may_not_continue_it,
}

/// Waits for an hour, and then cannot go on.
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

async fn runs_that_one_build_leaves_stuck_go_on_with_a_build_that_joined_before(rig: Rig) {
    let _fixed = rig.worker_of_build("b", fixed).await;
    rig.settle().await;
    let _broken = rig.worker_of_build("a", broken).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(rig.client.start(fixed, ()).await.unwrap());
    }
    rig.pass("1h").await;
    for run in runs {
        rig.send(run.id(), "go", 7).await;
        rig.settle().await;
        assert_eq!(run.output().await.unwrap(), 7);
    }
}

async fn forty_runs_go_on_after_a_bad_deploy_was_rolled_back_and_explain_says_why_they_wait(rig: Rig) {
    let good = rig.worker_of_build("good", fixed).await;
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(rig.client.start(fixed, ()).await.unwrap());
    }
    rig.settle().await;
    good.stop().await.unwrap();
    let bad = rig.worker_of_build("bad", broken).await;
    rig.pass("1h").await;
    for run in &runs {
        assert_eq!(rig.stuck(run.id()).await.build, "bad");
        let sentence = rig.client.explain(run.id()).await.unwrap().sentence;
        for part in [
            "Stuck (panicked): build `bad` cannot continue",
            "this build is broken",
            "different build is joined",
        ] {
            assert!(sentence.contains(part), "{part} is not in: {sentence}");
        }
    }
    bad.stop().await.unwrap();
    let _rolled_back = rig.worker_of_build("good", fixed).await;
    rig.settle().await;
    for run in &runs {
        assert_eq!(rig.status(run.id()).await, Status::Waiting);
        let sentence = rig.client.explain(run.id()).await.unwrap().sentence;
        assert!(sentence.contains("hook `go`") && !sentence.contains("bad"), "{sentence}");
        rig.send(run.id(), "go", 7).await;
    }
    rig.settle().await;
    for run in runs {
        assert_eq!(run.output().await.unwrap(), 7);
    }
}

/// A run that build `a` left stuck.
async fn left_stuck(rig: &Rig) -> RunHandle<u32> {
    let run = rig.client.start(fixed, ()).await.unwrap();
    let worker = rig.worker_of_build("a", broken).await;
    rig.pass("1h").await;
    worker.stop().await.unwrap();
    assert_eq!(rig.stuck(run.id()).await.build, "a");
    run
}

async fn a_build_that_failed_gets_the_run_again_after_progress(rig: Rig) {
    let run = left_stuck(&rig).await;
    let worker = rig.worker_of_build("b", fixed).await;
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    assert!(rig.view(run.id()).await.failed_builds.is_empty());
    let _rolled_back = rig.worker_of_build("a", fixed).await;
    rig.send(run.id(), "go", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn without_progress_the_run_is_stuck_again_for_the_build_that_failed(rig: Rig) {
    #[workflow(name = "trip")]
    async fn slow(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1h").await?;
        ctx.blocked("slow").await.map(|_| 7)
    }
    let run = left_stuck(&rig).await;
    let hold = rig.faults.hold(super::faulty::Call::Commit);
    let worker = rig.worker_of_build("b", slow).await;
    hold.arrived().await;
    worker.crash();
    rig.clock.advance(super::rig::SESSION);
    let _rolled_back = rig.worker_of_build("a", broken).await;
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!(stuck.build, "a");
    assert!(rig.view(run.id()).await.failed_builds.contains("a"));
}

async fn resume_lets_a_failed_build_try_again(rig: Rig) {
    let run = left_stuck(&rig).await;
    let _worker = rig.worker_of_build("a", fixed).await;
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Stuck);
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    // A run that waits may be resumed too: then every build may continue it.
    rig.client.resume(run.id()).await.unwrap();
    rig.send(run.id(), "go", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_held_or_ended_run_is_not_resumed(rig: Rig) {
    #[workflow]
    async fn held(ctx: Context) -> Result<String, Error> {
        ctx.blocked("held").await
    }
    let _worker = rig.worker(held).await;
    let run = rig.client.start(held, ()).await.unwrap();
    rig.desk.until("began held", 1).await;
    let error = rig.client.resume(run.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    rig.desk.open("held");
    run.output().await.unwrap();
    let error = rig.client.resume(run.id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

async fn a_run_that_every_joined_build_failed_to_continue_says_so(rig: Rig) {
    let run = left_stuck(&rig).await;
    let alone = rig.worker_of_build("a", broken).await;
    rig.settle().await;
    let explained = rig.client.explain(run.id()).await.unwrap();
    let Because::Stuck { failed_builds, other_builds, .. } = &explained.because else {
        panic!("{explained:?}")
    };
    assert_eq!((&failed_builds[..], &other_builds[..]), (&["a".to_owned()][..], &[][..]));
    assert!(
        explained.sentence.contains("No worker with a different build is joined"),
        "{}",
        explained.sentence
    );
    let second = rig.worker_of_build("c", broken).await;
    rig.settle().await;
    let explained = rig.client.explain(run.id()).await.unwrap();
    assert!(
        explained.sentence.contains("Builds `a` and `c` failed to continue it"),
        "{}",
        explained.sentence
    );
    second.stop().await.unwrap();
    alone.stop().await.unwrap();
}

async fn a_run_that_rests_says_when_it_is_retried(rig: Rig) {
    let run = left_stuck(&rig).await;
    for build in ["b", "c", "d", "e", "f", "g", "h", "i"] {
        let worker = rig.worker_of_build(build, broken).await;
        rig.settle().await;
        worker.stop().await.unwrap();
        assert_eq!(rig.stuck(run.id()).await.build, build);
    }
    let alone = rig.client.explain(run.id()).await.unwrap();
    assert!(alone.sentence.contains("no worker with a different build is joined"), "{}", alone.sentence);
    let _oldest = rig.worker_of_build("a", fixed).await;
    rig.settle().await;
    let rests = rig.client.explain(run.id()).await.unwrap();
    let Because::Stuck { other_builds, retry_at: Some(at), .. } = &rests.because else { panic!("{rests:?}") };
    assert_eq!((&other_builds[..], *at), (&["a".to_owned()][..], rig.moment("1h10m")));
    let expected = "the next retry is at 2030-01-01T01:10:00Z (in 10m), by a worker with a different build (`a`). Call \
                    `client.resume(run)` to retry at once.";
    assert!(rests.sentence.ends_with(expected), "{}", rests.sentence);
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
}

async fn a_waiting_run_says_which_builds_may_not_continue_it(rig: Rig) {
    #[workflow(name = "nap")]
    async fn nap(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1d").await
    }
    #[workflow(name = "nap")]
    async fn broken_nap(_ctx: Context) -> Result<(), Error> {
        panic!("this build is broken");
    }
    let worker = rig.worker_of_build("first", nap).await;
    let run = rig.client.start(nap, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    // A message of which nothing comes: whoever reads it adds no event.
    rig.client.wake_timer(run.id(), OpNumber(99)).await.unwrap();
    let failed = rig.worker_of_build("a", broken_nap).await;
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.build, "a");
    let worker = rig.worker_of_build("b", nap).await;
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    let explained = rig.client.explain(run.id()).await.unwrap();
    let Because::Waits { failed_builds, workers: 0, .. } = &explained.because else {
        panic!("{explained:?}")
    };
    assert_eq!(failed_builds, &["a"]);
    assert!(explained.sentence.contains("Builds that failed to continue it (`a`)"), "{}", explained.sentence);
    rig.pass("2d").await;
    let explained = rig.client.explain(run.id()).await.unwrap();
    assert!(matches!(explained.because, Because::BuildsFailed { .. }), "{explained:?}");
    failed.stop().await.unwrap();
    let _worker = rig.worker_of_build("b", nap).await;
    run.output().await.unwrap();
}
