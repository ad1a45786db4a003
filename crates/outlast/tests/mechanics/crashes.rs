//! Crash classes: a run that crashes its workers is found, and the runs beside it do not wait for each other.

use outlast::prelude::*;
use outlast::{Because, Status, StuckReason};

use super::faulty::Call;
use super::rig::{Ask, Rig, on_every_world};

on_every_world! {
    innocent_runs_are_all_carried_at_once_after_two_crashes,
    a_killer_beside_a_branch_that_commits_is_found,
    a_fresh_killer_does_not_take_a_run_of_the_last_class_along,
    a_worker_takes_no_starts_while_a_run_is_on_trial,
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

async fn innocent_runs_are_all_carried_at_once_after_two_crashes(rig: Rig) {
    const RUNS: usize = 50;
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(rig.client.start(innocent, ()).await.unwrap());
    }
    for crash in 1..=2 {
        let worker = rig.worker(innocent).await;
        rig.desk.until("began innocent", crash * RUNS).await;
        rig.crash(worker);
    }
    let claims = rig.faults.count(Call::Claim);
    let _worker = rig.worker(innocent).await;
    rig.desk.until("began innocent", 3 * RUNS).await;
    let claims = rig.faults.count(Call::Claim) - claims;
    assert_eq!(rig.client.counts().await.unwrap()[&Status::Running], RUNS as u64);
    assert!(claims <= 2, "all of them came with {claims} claims");
    rig.desk.open("innocent");
    for run in runs {
        run.output().await.unwrap();
        assert_eq!(rig.view(run.id()).await.crashes, 0);
    }
}

async fn a_killer_beside_a_branch_that_commits_is_found(rig: Rig) {
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
    let run = rig.client.start(busy_killer, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = rig.worker_of_build("a", busy_killer).await;
        rig.desk.until("began deadly", crash).await;
        let ticks = rig.desk.count("tick");
        while rig.desk.count("tick") < ticks + 2 {
            rig.clock.advance("1s");
            tokio::task::yield_now().await;
        }
        rig.crash(worker);
    }
    let _worker = rig.worker_of_build("a", busy_killer).await;
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::Poison);
}

/// An innocent run that four workers crashed with.
async fn of_the_last_class(rig: &Rig) -> RunHandle<String> {
    let run = rig.client.start(innocent, ()).await.unwrap();
    for crash in 1..=4 {
        let worker = rig.worker(innocent).await;
        rig.desk.until("began innocent", crash).await;
        rig.crash(worker);
    }
    run
}

async fn a_fresh_killer_does_not_take_a_run_of_the_last_class_along(rig: Rig) {
    let innocent_run = of_the_last_class(&rig).await;
    let killer_run = rig.client.start(killer, ()).await.unwrap();
    let worker = rig.worker((innocent, killer)).await;
    rig.desk.until("began innocent", 5).await;
    assert_eq!(rig.desk.count("began deadly"), 0, "the innocent run is tried alone");
    rig.clock.advance("60s");
    rig.desk.until("began deadly", 1).await;
    rig.crash(worker);
    let worker = rig.worker((innocent, killer)).await;
    rig.desk.until("began innocent", 6).await;
    assert_eq!(rig.view(innocent_run.id()).await.crashes, 4);
    assert_eq!(rig.view(killer_run.id()).await.crashes, 1);
    rig.desk.open("innocent");
    assert_eq!(innocent_run.output().await.unwrap(), "innocent");
    rig.desk.until("began deadly", 2).await;
    rig.desk.open("deadly");
    killer_run.output().await.unwrap();
    worker.stop().await.unwrap();
}

async fn a_worker_takes_no_starts_while_a_run_is_on_trial(rig: Rig) {
    let tried = of_the_last_class(&rig).await;
    let worker = rig.worker((innocent, killer)).await;
    rig.desk.until("began innocent", 5).await;
    let started = rig.client.start(killer, ()).await.unwrap();
    assert_eq!(rig.status(started.id()).await, Status::Pending);
    assert_eq!(worker.metrics().live_runs, 1);
    rig.desk.open("innocent");
    tried.output().await.unwrap();
    rig.desk.until("began deadly", 1).await;
    rig.desk.open("deadly");
    started.output().await.unwrap();
}

async fn a_run_that_waits_for_a_probe_says_so(rig: Rig) {
    let probed = of_the_last_class(&rig).await;
    let _worker = rig.worker((innocent, killer)).await;
    rig.desk.until("began innocent", 5).await;
    let waiting = rig.client.start(killer, ()).await.unwrap();
    let why = rig.client.explain(waiting.id()).await.unwrap();
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
    // The worker may begin to count only now.
    while rig.desk.count("began deadly") == 0 {
        rig.clock.advance("60s");
        tokio::task::yield_now().await;
    }
    rig.desk.open("innocent");
    rig.desk.open("deadly");
    waiting.output().await.unwrap();
}

async fn a_step_that_fails_an_attempt_clears_the_crashes(rig: Rig) {
    #[step(attempts = 2, initial = "1h")]
    async fn second_time(cx: StepContext<super::rig::Desk>) -> Result<u32, StepError> {
        cx.state().leave("began second time");
        cx.state().passed("second time").await;
        if cx.attempt() == 1 { Err(StepError::msg("once more")) } else { Ok(cx.attempt()) }
    }
    #[workflow]
    async fn twice(ctx: Context) -> Result<u32, Error> {
        ctx.step(second_time, ()).await
    }
    let run = rig.client.start(twice, ()).await.unwrap();
    let worker = rig.worker((twice, second_time)).await;
    rig.desk.until("began second time", 1).await;
    rig.crash(worker);
    let _worker = rig.worker((twice, second_time)).await;
    rig.desk.until("began second time", 2).await;
    assert_eq!(rig.view(run.id()).await.crashes, 1);
    let operations = rig.client.operations(run.id()).await.unwrap();
    assert_eq!((operations[0].attempts, operations[0].crashed), (1, 1));
    rig.desk.open("second time");
    rig.until(run.id(), Status::Waiting).await;
    assert_eq!(rig.view(run.id()).await.crashes, 0);
    assert_eq!(rig.client.operations(run.id()).await.unwrap()[0].crashed, 0);
}

async fn a_poisoned_run_names_its_open_steps(rig: Rig) {
    let run = rig.client.start(killer, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = rig.worker_of_build("a", killer).await;
        rig.desk.until("began deadly", crash).await;
        rig.crash(worker);
    }
    let _worker = rig.worker_of_build("a", killer).await;
    rig.settle().await;
    let explained = rig.client.explain(run.id()).await.unwrap();
    assert!(explained.sentence.contains("Step `blocked` was in progress then."), "{}", explained.sentence);
    assert_eq!(rig.client.operations(run.id()).await.unwrap()[0].crashed, 5);
}
