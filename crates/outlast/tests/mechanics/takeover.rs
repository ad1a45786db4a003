//! Takeover, poison and fencing: a run continues on another worker, and its old worker writes nothing.

use outlast::prelude::*;
use outlast::{Status, StuckReason};
use outlast_testkit::TestClock;

use super::faulty_world::{Call, FaultyWorld};
use super::test_engine::{SESSION, StepCalls, TestEngine, on_every_world, pause_between_reads, with_timeout};

on_every_world! {
    a_run_of_a_crashed_worker_continues_on_another,
    recorded_steps_do_not_run_again_after_a_crash,
    the_attempt_under_way_at_a_crash_is_made_again_with_the_same_key,
    a_worker_that_lost_its_session_writes_nothing,
    a_worker_that_lost_its_session_drops_its_runs_and_cancels_their_attempts,
    a_worker_that_lost_its_session_joins_again,
    a_worker_that_lost_its_session_while_it_started_joins_again,
    expiry_alone_changes_nothing,
    a_second_worker_does_not_run_a_live_step_again,
    a_run_that_crashes_its_worker_again_and_again_becomes_stuck_and_others_do_not,
    a_commit_clears_the_suspicion,
    a_run_of_the_last_crash_class_is_tried_alone,
}

#[workflow]
async fn journey(ctx: Context) -> Result<String, Error> {
    ctx.note("one").await?;
    ctx.note("two").await?;
    ctx.blocked("slow").await
}

async fn a_run_of_a_crashed_worker_continues_on_another(engine: TestEngine) {
    let worker = engine.worker(journey).await;
    let run = engine.client.start(journey, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    assert_eq!(engine.view(run.id()).await.owner, Some(worker.session()));
    engine.crash(worker);
    let worker = engine.worker(journey).await;
    engine.steps.wait_for_log("began slow", 2).await;
    assert_eq!(engine.view(run.id()).await.owner, Some(worker.session()));
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
}

async fn recorded_steps_do_not_run_again_after_a_crash(engine: TestEngine) {
    let mut worker = engine.worker(journey).await;
    let run = engine.client.start(journey, ()).await.unwrap();
    for crashes in 1..4 {
        engine.steps.wait_for_log("began slow", crashes).await;
        engine.crash(worker);
        worker = engine.worker(journey).await;
    }
    engine.steps.open("slow");
    run.output().await.unwrap();
    assert_eq!((engine.steps.count("one"), engine.steps.count("two")), (1, 1));
    assert_eq!(engine.steps.count("ended slow"), 1);
}

async fn the_attempt_under_way_at_a_crash_is_made_again_with_the_same_key(engine: TestEngine) {
    #[step]
    async fn keyed(cx: StepContext<super::test_engine::StepState>) -> String {
        cx.state().log(format!("{} attempt {}", cx.key(), cx.attempt()));
        if cx.state().logged().len() == 1 {
            std::future::pending::<()>().await;
        }
        cx.key()
    }
    #[workflow]
    async fn one_step(ctx: Context) -> Result<String, Error> {
        ctx.step(keyed, ()).await
    }
    let worker = engine.worker((one_step, keyed)).await;
    let run = engine.client.start(one_step, ()).await.unwrap();
    let key = format!("{}.0.0", run.id());
    engine.steps.wait_for_log(&format!("{key} attempt 1"), 1).await;
    engine.crash(worker);
    let _worker = engine.worker((one_step, keyed)).await;
    assert_eq!(run.output().await.unwrap(), key);
    assert_eq!(engine.steps.count(&format!("{key} attempt 1")), 2, "a lost attempt is not a failed one");
}

#[workflow]
async fn one_note(ctx: Context) -> Result<String, Error> {
    ctx.note("done").await
}

async fn a_worker_that_lost_its_session_writes_nothing(engine: TestEngine) {
    let run = engine.client.start(one_note, ()).await.unwrap();
    let frozen = engine.faults.hold(Call::Commit);
    let _zombie = engine.worker(one_note).await;
    frozen.wait_for_call().await;
    engine.clock.advance(SESSION);
    let _worker = engine.worker(one_note).await;
    assert_eq!(run.output().await.unwrap(), "done");
    let before = engine.turns(run.id()).await;
    assert_eq!(engine.faults.fenced(), 0);
    frozen.open();
    while engine.faults.fenced() == 0 {
        tokio::task::yield_now().await;
    }
    engine.settle().await;
    assert_eq!(engine.turns(run.id()).await, before);
    assert_eq!(engine.steps.count("done"), 1, "what was not committed is not started");
}

async fn a_worker_that_lost_its_session_drops_its_runs_and_cancels_their_attempts(engine: TestEngine) {
    #[workflow]
    async fn two_steps(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.stoppable("left"), ctx.stoppable("right")).map(drop)
    }
    let _zombie = engine.worker(two_steps).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began left", 1).await;
    engine.steps.wait_for_log("began right", 1).await;
    engine.clock.advance(SESSION);
    let _worker = engine.worker(two_steps).await;
    engine.steps.wait_for_log("stopped left", 1).await;
    engine.steps.wait_for_log("stopped right", 1).await;
    engine.steps.wait_for_log("began left", 2).await;
    engine.steps.open("left");
    engine.steps.open("right");
    run.output().await.unwrap();
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("\"done\"").count(), 2, "{history}");
}

async fn a_worker_that_lost_its_session_joins_again(engine: TestEngine) {
    let zombie = engine.worker(one_note).await;
    engine.settle().await;
    let lost = zombie.session();
    engine.clock.advance(SESSION);
    let worker = engine.worker(one_note).await;
    // Any change of the world makes the old worker claim, and notice the loss.
    let elsewhere = engine.client.start(Workflow::<(), ()>::new("elsewhere"), ()).await.unwrap();
    while zombie.session() == lost {
        engine.settle().await;
        pause_between_reads().await;
    }
    engine.settle().await;
    worker.stop().await.unwrap();
    let run = engine.client.start(one_note, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done");
    assert_eq!(engine.status(elsewhere.id()).await, Status::Pending);
}

async fn a_worker_that_lost_its_session_while_it_started_joins_again(engine: TestEngine) {
    let gate = engine.faults.hold(Call::Takeover);
    let taken = async {
        gate.wait_for_call().await;
        let frozen = engine.client.workers().await.unwrap().remove(0).session;
        engine.world.leave(frozen).await.unwrap();
        gate.open();
        frozen
    };
    let (worker, frozen) = join!(engine.worker(one_note), taken);
    let run = engine.client.start(one_note, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done");
    assert_ne!(worker.session(), frozen);
}

/// In real time, since workers send no beats in virtual time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_that_is_away_for_a_third_of_the_session_costs_no_session() {
    let world = outlast::open("memory:").await.unwrap();
    let (world, faults) = FaultyWorld::wrap(world, TestClock::new());
    let worker = Worker::builder(world).session_time("4s").register(silent).start().await.unwrap();
    // A beat is due after a quarter of the session's time; it is repeated soon, not a quarter later.
    (0..3).for_each(|_| faults.refuse(Call::Beat, 0));
    let session = worker.session();
    with_timeout(async {
        while worker.metrics().beats == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!((faults.left(), worker.metrics().sessions_lost), (0, 0));
    assert_eq!(worker.session(), session);
}

#[workflow]
async fn silent(_ctx: Context) -> Result<(), Error> {
    Ok(())
}

async fn expiry_alone_changes_nothing(engine: TestEngine) {
    let worker = engine.worker(journey).await;
    let run = engine.client.start(journey, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.clock.advance(SESSION * 100);
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!(engine.steps.count("began slow"), 1);
    worker.stop().await.unwrap();
}

async fn a_second_worker_does_not_run_a_live_step_again(engine: TestEngine) {
    let _first = engine.worker(journey).await;
    let run = engine.client.start(journey, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    let claims = engine.faults.count(Call::Claim);
    let second = engine.worker(journey).await;
    while engine.faults.count(Call::Claim) == claims {
        tokio::task::yield_now().await;
    }
    // The second leaves only after its claimed runs have ended.
    second.stop().await.unwrap();
    assert_eq!(engine.steps.logged(), ["one", "two", "began slow"]);
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!(engine.steps.count("began slow"), 1);
}

#[workflow]
async fn killer(ctx: Context) -> Result<String, Error> {
    ctx.blocked("deadly").await
}

#[workflow]
async fn bystander(ctx: Context) -> Result<String, Error> {
    ctx.blocked("harmless").await
}

async fn a_run_that_crashes_its_worker_again_and_again_becomes_stuck_and_others_do_not(engine: TestEngine) {
    let killer_run = engine.client.start(killer, ()).await.unwrap();
    let bystander_run = engine.client.start(bystander, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = engine.worker_of_build("a", (killer, bystander)).await;
        engine.steps.wait_for_log("began deadly", crash).await;
        if crash <= 2 {
            engine.steps.wait_for_log("began harmless", crash).await;
        }
        engine.crash(worker);
        if crash == 2 {
            engine.steps.open("harmless");
        }
    }
    let worker = engine.worker_of_build("a", (killer, bystander)).await;
    assert_eq!(bystander_run.output().await.unwrap(), "harmless");
    engine.settle().await;
    let stuck = engine.stuck(killer_run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Poison);
    assert!(stuck.message.contains("crashed 5 times"), "{}", stuck.message);
    assert_eq!(engine.steps.count("began deadly"), 5);

    worker.stop().await.unwrap();
    engine.steps.open("deadly");
    let _mended = engine.worker_of_build("b", (killer, bystander)).await;
    assert_eq!(engine.output_after_fix(&killer_run).await, "deadly");
}

async fn a_commit_clears_the_suspicion(engine: TestEngine) {
    #[workflow]
    async fn many_blocks(ctx: Context) -> Result<(), Error> {
        for gate in ["0", "1", "2", "3", "4", "5", "6"] {
            ctx.blocked(gate).await?;
        }
        Ok(())
    }
    let run = engine.client.start(many_blocks, ()).await.unwrap();
    // Seven crashes in total, but never two without progress.
    for gate in ["0", "1", "2", "3", "4", "5", "6"] {
        let worker = engine.worker(many_blocks).await;
        engine.steps.wait_for_log(&format!("began {gate}"), 1).await;
        engine.crash(worker);
        engine.steps.open(gate);
    }
    let _worker = engine.worker(many_blocks).await;
    run.output().await.unwrap();
    assert_eq!(engine.view(run.id()).await.crashes, 0);
}

async fn a_run_of_the_last_crash_class_is_tried_alone(engine: TestEngine) {
    #[workflow]
    async fn two_blocks(ctx: Context) -> Result<(), Error> {
        ctx.blocked("first").await?;
        ctx.blocked("second").await.map(drop)
    }
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(engine.client.start(two_blocks, ()).await.unwrap());
    }
    for crash in 1..=4 {
        let worker = engine.worker(two_blocks).await;
        engine.steps.wait_for_log("began first", 2 * crash).await;
        engine.crash(worker);
    }
    let _worker = engine.worker(two_blocks).await;
    engine.steps.wait_for_log("began first", 9).await;
    assert_eq!(engine.client.counts().await.unwrap()[&Status::Running], 1);
    // The first run is no suspect any more when its step has ended, although the run continues.
    engine.steps.open("first");
    engine.steps.wait_for_log("began second", 2).await;
    engine.steps.open("second");
    for run in runs {
        run.output().await.unwrap();
    }
}
