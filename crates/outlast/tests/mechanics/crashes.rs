//! Crash classes: a run that crashes its workers is isolated, and other runs continue.

use outlast::prelude::*;
use outlast::{Because, Register, Status, StuckReason};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    innocent_runs_are_all_carried_at_once_after_two_crashes,
    a_killer_beside_a_branch_that_commits_is_found,
    a_fresh_killer_does_not_take_a_run_of_the_last_class_along,
    a_worker_takes_no_starts_while_a_run_is_on_trial,
    a_suspect_that_a_claim_had_to_leave_is_claimed_when_the_other_class_is_gone,
    a_claim_during_which_the_time_of_a_trial_ends_is_followed_by_another,
    a_run_that_waits_for_a_probe_says_so,
    a_step_that_fails_an_attempt_clears_the_crashes,
    a_poisoned_run_names_its_open_steps,
}

#[workflow]
async fn innocent(ctx: Context) -> Result<String, Error> {
    ctx.blocked("innocent").await
}

#[workflow]
async fn killer(ctx: Context) -> Result<String, Error> {
    ctx.blocked("deadly").await
}

async fn innocent_runs_are_all_carried_at_once_after_two_crashes(engine: TestEngine) {
    const RUNS: usize = 50;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(engine.client.start(innocent, ()).await.unwrap());
    }
    for crash in 1..=2 {
        let worker = engine.worker(innocent).await;
        engine.steps.wait_for_log("began innocent", crash * RUNS).await;
        engine.crash(worker);
    }
    let claims = engine.faults.count(Call::Claim);
    let _worker = engine.worker(innocent).await;
    engine.steps.wait_for_log("began innocent", 3 * RUNS).await;
    let claims = engine.faults.count(Call::Claim) - claims;
    assert_eq!(engine.client.counts().await.unwrap()[&Status::Running], RUNS as u64);
    assert!(claims <= 2, "all of them came with {claims} claims");
    engine.steps.open("innocent");
    for run in runs {
        run.output().await.unwrap();
        assert_eq!(engine.view(run.id()).await.crashes, 0);
    }
}

async fn a_killer_beside_a_branch_that_commits_is_found(engine: TestEngine) {
    #[workflow]
    async fn busy_killer(ctx: Context) -> Result<(), Error> {
        let ticks = async {
            loop {
                ctx.sleep("1s").await?;
                ctx.note("tick").await?;
            }
        };
        select! {
            deadly = ctx.blocked("deadly") => deadly.map(drop),
            ticked = ticks => ticked,
        }
    }
    let run = engine.client.start(busy_killer, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = engine.worker_of_build("a", busy_killer).await;
        engine.steps.wait_for_log("began deadly", crash).await;
        let ticks = engine.steps.count("tick");
        while engine.steps.count("tick") < ticks + 2 {
            engine.clock.advance("1s");
            tokio::task::yield_now().await;
        }
        engine.crash(worker);
    }
    let _worker = engine.worker_of_build("a", busy_killer).await;
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Poison);
}

/// A run whose workers were crashed four times by another run.
async fn of_the_last_class(engine: &TestEngine) -> RunHandle<String> {
    let run = engine.client.start(innocent, ()).await.unwrap();
    crash_workers(engine, innocent, "began innocent", 4).await;
    run
}

async fn a_fresh_killer_does_not_take_a_run_of_the_last_class_along(engine: TestEngine) {
    let innocent_run = of_the_last_class(&engine).await;
    let killer_run = engine.client.start(killer, ()).await.unwrap();
    let worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 5).await;
    assert_eq!(engine.steps.count("began deadly"), 0, "the innocent run is tried alone");
    engine.clock.advance("60s");
    engine.steps.wait_for_log("began deadly", 1).await;
    engine.crash(worker);
    let worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 6).await;
    assert_eq!(engine.view(innocent_run.id()).await.crashes, 4);
    assert_eq!(engine.view(killer_run.id()).await.crashes, 1);
    engine.steps.open("innocent");
    assert_eq!(innocent_run.output().await.unwrap(), "innocent");
    engine.steps.wait_for_log("began deadly", 2).await;
    engine.steps.open("deadly");
    killer_run.output().await.unwrap();
    worker.stop().await.unwrap();
}

async fn a_worker_takes_no_starts_while_a_run_is_on_trial(engine: TestEngine) {
    let tried = of_the_last_class(&engine).await;
    let worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 5).await;
    let started = engine.client.start(killer, ()).await.unwrap();
    assert_eq!(engine.status(started.id()).await, Status::Pending);
    assert_eq!(worker.metrics().live_runs, 1);
    engine.steps.open("innocent");
    tried.output().await.unwrap();
    engine.steps.wait_for_log("began deadly", 1).await;
    engine.steps.open("deadly");
    started.output().await.unwrap();
}

async fn a_suspect_that_a_claim_had_to_leave_is_claimed_when_the_other_class_is_gone(engine: TestEngine) {
    let third_class = engine.client.start(innocent, ()).await.unwrap();
    crash_workers(&engine, innocent, "began innocent", 3).await;
    let second_class = engine.client.start(killer, ()).await.unwrap();
    crash_workers(&engine, killer, "began deadly", 2).await;
    let _worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 4).await;
    assert_eq!(
        engine.status(second_class.id()).await,
        Status::Pending,
        "a worker carries one class at a time"
    );
    // A claim asks for no other class; meanwhile the run of the third class ends.
    let claim = engine.faults.hold(Call::Claim);
    engine.client.start(Workflow::<(), ()>::new("elsewhere"), ()).await.unwrap();
    claim.wait_for_call().await;
    engine.steps.open("innocent");
    third_class.output().await.unwrap();
    claim.open();
    engine.steps.wait_for_log("began deadly", 3).await;
    engine.steps.open("deadly");
    second_class.output().await.unwrap();
}

async fn a_claim_during_which_the_time_of_a_trial_ends_is_followed_by_another(engine: TestEngine) {
    let tried = of_the_last_class(&engine).await;
    let waiting = engine.client.start(killer, ()).await.unwrap();
    let _worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 5).await;
    let claim = engine.faults.hold(Call::Claim);
    engine.client.start(Workflow::<(), ()>::new("elsewhere"), ()).await.unwrap();
    claim.wait_for_call().await;
    engine.clock.advance("60s");
    claim.open();
    engine.steps.wait_for_log("began deadly", 1).await;
    engine.steps.open("deadly");
    engine.steps.open("innocent");
    waiting.output().await.unwrap();
    tried.output().await.unwrap();
}

/// Crashes this many workers with this code, each when the step has begun again.
async fn crash_workers<R: Register<StepState, M> + Copy, M>(
    engine: &TestEngine,
    code: R,
    began: &str,
    crashes: usize,
) {
    for crash in 1..=crashes {
        let worker = engine.worker(code).await;
        engine.steps.wait_for_log(began, crash).await;
        engine.crash(worker);
    }
}

async fn a_run_that_waits_for_a_probe_says_so(engine: TestEngine) {
    let probed = of_the_last_class(&engine).await;
    let _worker = engine.worker((innocent, killer)).await;
    engine.steps.wait_for_log("began innocent", 5).await;
    let waiting = engine.client.start(killer, ()).await.unwrap();
    let why = engine.client.explain(waiting.id()).await.unwrap();
    let Because::Ready { probes, workers, .. } = &why.because else { panic!("{why:?}") };
    assert_eq!((probes.len(), probes[0].run, probes[0].crashes), (1, probed.id(), 4));
    assert_eq!(probes[0].worker, workers[0].session);
    let expected = format!(
        " probes run {}, whose worker crashed 4 times, and takes other runs when that run has committed a turn, or after 1m at \
         most (at ",
        probed.id()
    );
    assert!(why.sentence.contains(&expected), "{}", why.sentence);
    assert!(!why.sentence.contains("If this lasts"), "{}", why.sentence);
    // The worker starts its measurement only now.
    while engine.steps.count("began deadly") == 0 {
        advance_a_little(&engine).await;
    }
    engine.steps.open("innocent");
    engine.steps.open("deadly");
    // The last advance may have ended the session: then another takes the run over.
    while engine.status(waiting.id()).await != Status::Completed {
        advance_a_little(&engine).await;
    }
}

/// Advances the clock by less than the time of a session, and gives the worker time to beat and to claim: otherwise the
/// session would end, and the next one would begin with the same probe.
async fn advance_a_little(engine: &TestEngine) {
    engine.clock.advance("500ms");
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}

async fn a_step_that_fails_an_attempt_clears_the_crashes(engine: TestEngine) {
    #[step(attempts = 2, initial = "1h")]
    async fn second_time(cx: StepContext<super::test_engine::StepState>) -> Result<u32, StepError> {
        cx.state().log("began second time");
        cx.state().wait_for_gate("second time").await;
        if cx.attempt() == 1 { Err(StepError::msg("once more")) } else { Ok(cx.attempt()) }
    }
    #[workflow]
    async fn twice(ctx: Context) -> Result<u32, Error> {
        ctx.step(second_time, ()).await
    }
    let run = engine.client.start(twice, ()).await.unwrap();
    let worker = engine.worker((twice, second_time)).await;
    engine.steps.wait_for_log("began second time", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((twice, second_time)).await;
    engine.steps.wait_for_log("began second time", 2).await;
    assert_eq!(engine.view(run.id()).await.crashes, 1);
    let operations = engine.client.operations(run.id()).await.unwrap();
    assert_eq!((operations[0].attempt_count, operations[0].crashed), (1, 1));
    engine.steps.open("second time");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    assert_eq!(engine.view(run.id()).await.crashes, 0);
    assert_eq!(engine.client.operations(run.id()).await.unwrap()[0].crashed, 0);
}

async fn a_poisoned_run_names_its_open_steps(engine: TestEngine) {
    let run = engine.client.start(killer, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = engine.worker_of_build("a", killer).await;
        engine.steps.wait_for_log("began deadly", crash).await;
        engine.crash(worker);
    }
    let _worker = engine.worker_of_build("a", killer).await;
    engine.settle().await;
    let explained = engine.client.explain(run.id()).await.unwrap();
    assert!(explained.sentence.contains("Step `blocked` was in progress then."), "{}", explained.sentence);
    assert_eq!(engine.client.operations(run.id()).await.unwrap()[0].crashed, 5);
}
