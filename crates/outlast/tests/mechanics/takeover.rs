//! Takeover, poison and fencing: a run goes on elsewhere, and its old worker writes nothing.

use outlast::prelude::*;
use outlast::{Status, StuckReason};
use outlast_testkit::TestClock;

use super::faulty::{Call, FaultyWorld};
use super::rig::{Ask, Rig, SESSION, in_time, on_every_world};

on_every_world! {
    a_run_of_a_crashed_worker_goes_on_elsewhere,
    recorded_steps_do_not_run_again_after_a_crash,
    the_attempt_under_way_at_a_crash_is_made_again_with_the_same_key,
    a_zombie_writes_nothing,
    a_zombie_forgets_its_run_and_tells_its_attempts_to_stop,
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

async fn a_run_of_a_crashed_worker_goes_on_elsewhere(rig: Rig) {
    let worker = rig.worker(journey).await;
    let run = rig.client.start(journey, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    assert_eq!(rig.view(run.id()).await.owner, Some(worker.session()));
    rig.crash(worker);
    let worker = rig.worker(journey).await;
    rig.desk.until("began slow", 2).await;
    assert_eq!(rig.view(run.id()).await.owner, Some(worker.session()));
    rig.desk.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
}

async fn recorded_steps_do_not_run_again_after_a_crash(rig: Rig) {
    let mut worker = rig.worker(journey).await;
    let run = rig.client.start(journey, ()).await.unwrap();
    for crashes in 1..4 {
        rig.desk.until("began slow", crashes).await;
        rig.crash(worker);
        worker = rig.worker(journey).await;
    }
    rig.desk.open("slow");
    run.output().await.unwrap();
    assert_eq!((rig.desk.count("one"), rig.desk.count("two")), (1, 1));
    assert_eq!(rig.desk.count("ended slow"), 1);
}

async fn the_attempt_under_way_at_a_crash_is_made_again_with_the_same_key(rig: Rig) {
    #[step]
    async fn keyed(cx: StepContext<super::rig::Desk>) -> String {
        cx.state().leave(format!("{} attempt {}", cx.key(), cx.attempt()));
        if cx.state().notes().len() == 1 {
            std::future::pending::<()>().await;
        }
        cx.key()
    }
    #[workflow]
    async fn one_step(ctx: Context) -> Result<String, Error> {
        ctx.step(keyed, ()).await
    }
    let worker = rig.worker((one_step, keyed)).await;
    let run = rig.client.start(one_step, ()).await.unwrap();
    let key = format!("{}.0.0", run.id());
    rig.desk.until(&format!("{key} attempt 1"), 1).await;
    rig.crash(worker);
    let _worker = rig.worker((one_step, keyed)).await;
    assert_eq!(run.output().await.unwrap(), key);
    assert_eq!(rig.desk.count(&format!("{key} attempt 1")), 2, "a lost attempt is not a failed one");
}

#[workflow]
async fn one_note(ctx: Context) -> Result<String, Error> {
    ctx.note("done").await
}

async fn a_zombie_writes_nothing(rig: Rig) {
    let run = rig.client.start(one_note, ()).await.unwrap();
    let frozen = rig.faults.hold(Call::Commit);
    let _zombie = rig.worker(one_note).await;
    frozen.arrived().await;
    rig.clock.advance(SESSION);
    let _worker = rig.worker(one_note).await;
    assert_eq!(run.output().await.unwrap(), "done");
    let before = rig.turns(run.id()).await;
    assert_eq!(rig.faults.fenced(), 0);
    frozen.open();
    while rig.faults.fenced() == 0 {
        tokio::task::yield_now().await;
    }
    rig.settle().await;
    assert_eq!(rig.turns(run.id()).await, before);
    assert_eq!(rig.desk.count("done"), 1, "what was not committed is not started");
}

async fn a_zombie_forgets_its_run_and_tells_its_attempts_to_stop(rig: Rig) {
    #[workflow]
    async fn two_steps(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.stoppable("left"), ctx.stoppable("right")).map(drop)
    }
    let _zombie = rig.worker(two_steps).await;
    let run = rig.client.start(two_steps, ()).await.unwrap();
    rig.desk.until("began left", 1).await;
    rig.desk.until("began right", 1).await;
    rig.clock.advance(SESSION);
    let _worker = rig.worker(two_steps).await;
    rig.desk.until("stopped left", 1).await;
    rig.desk.until("stopped right", 1).await;
    rig.desk.until("began left", 2).await;
    rig.desk.open("left");
    rig.desk.open("right");
    run.output().await.unwrap();
    let history = rig.history(run.id()).await;
    assert_eq!(history.matches("\"done\"").count(), 2, "{history}");
}

async fn a_worker_that_lost_its_session_joins_again(rig: Rig) {
    let zombie = rig.worker(one_note).await;
    rig.settle().await;
    let lost = zombie.session();
    rig.clock.advance(SESSION);
    let worker = rig.worker(one_note).await;
    // Whatever happens in the world makes the zombie ask, and learn.
    let elsewhere = rig.client.start(Workflow::<(), ()>::new("elsewhere"), ()).await.unwrap();
    while zombie.session() == lost {
        rig.settle().await;
        tokio::task::yield_now().await;
    }
    rig.settle().await;
    worker.stop().await.unwrap();
    let run = rig.client.start(one_note, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done");
    assert_eq!(rig.status(elsewhere.id()).await, Status::Pending);
}

async fn a_worker_that_lost_its_session_while_it_started_joins_again(rig: Rig) {
    let gate = rig.faults.hold(Call::Takeover);
    let taken = async {
        gate.arrived().await;
        let frozen = rig.client.workers().await.unwrap().remove(0).session;
        rig.world.leave(frozen).await.unwrap();
        gate.open();
        frozen
    };
    let (worker, frozen) = join!(rig.worker(one_note), taken);
    let run = rig.client.start(one_note, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done");
    assert_ne!(worker.session(), frozen);
}

/// In real time: in a test's time nobody beats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_world_that_is_away_for_a_third_of_the_session_costs_no_session() {
    let world = outlast::open("memory:").await.unwrap();
    let (world, faults) = FaultyWorld::around(world, TestClock::new());
    let worker = Worker::builder(world).session_time("4s").register(silent).start().await.unwrap();
    // A beat is due after a quarter of the session's time; it is repeated soon, not a quarter later.
    (0..3).for_each(|_| faults.refuse(Call::Beat, 0));
    let session = worker.session();
    in_time(async {
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

async fn expiry_alone_changes_nothing(rig: Rig) {
    let worker = rig.worker(journey).await;
    let run = rig.client.start(journey, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    rig.clock.advance(SESSION * 100);
    rig.desk.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!(rig.desk.count("began slow"), 1);
    worker.stop().await.unwrap();
}

async fn a_second_worker_does_not_run_a_live_step_again(rig: Rig) {
    let _first = rig.worker(journey).await;
    let run = rig.client.start(journey, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    let claims = rig.faults.count(Call::Claim);
    let second = rig.worker(journey).await;
    while rig.faults.count(Call::Claim) == claims {
        tokio::task::yield_now().await;
    }
    // The second leaves only after what it claimed was done.
    second.stop().await.unwrap();
    assert_eq!(rig.desk.notes(), ["one", "two", "began slow"]);
    rig.desk.open("slow");
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!(rig.desk.count("began slow"), 1);
}

#[workflow]
async fn killer(ctx: Context) -> Result<String, Error> {
    ctx.blocked("deadly").await
}

#[workflow]
async fn bystander(ctx: Context) -> Result<String, Error> {
    ctx.blocked("harmless").await
}

async fn a_run_that_crashes_its_worker_again_and_again_becomes_stuck_and_others_do_not(rig: Rig) {
    let killer_run = rig.client.start(killer, ()).await.unwrap();
    let bystander_run = rig.client.start(bystander, ()).await.unwrap();
    for crash in 1..=5 {
        let worker = rig.worker_of_build("a", (killer, bystander)).await;
        rig.desk.until("began deadly", crash).await;
        if crash <= 2 {
            rig.desk.until("began harmless", crash).await;
        }
        rig.crash(worker);
        if crash == 2 {
            rig.desk.open("harmless");
        }
    }
    let worker = rig.worker_of_build("a", (killer, bystander)).await;
    assert_eq!(bystander_run.output().await.unwrap(), "harmless");
    rig.settle().await;
    let stuck = rig.stuck(killer_run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Poison);
    assert!(stuck.message.contains("crashed 5 times"), "{}", stuck.message);
    assert_eq!(rig.desk.count("began deadly"), 5);

    worker.stop().await.unwrap();
    rig.desk.open("deadly");
    let _mended = rig.worker_of_build("b", (killer, bystander)).await;
    assert_eq!(rig.mended(&killer_run).await, "deadly");
}

async fn a_commit_clears_the_suspicion(rig: Rig) {
    #[workflow]
    async fn many_blocks(ctx: Context) -> Result<(), Error> {
        for gate in ["0", "1", "2", "3", "4", "5", "6"] {
            ctx.blocked(gate).await?;
        }
        Ok(())
    }
    let run = rig.client.start(many_blocks, ()).await.unwrap();
    // Seven crashes in all, but never two without progress.
    for gate in ["0", "1", "2", "3", "4", "5", "6"] {
        let worker = rig.worker(many_blocks).await;
        rig.desk.until(&format!("began {gate}"), 1).await;
        rig.crash(worker);
        rig.desk.open(gate);
    }
    let _worker = rig.worker(many_blocks).await;
    run.output().await.unwrap();
    assert_eq!(rig.view(run.id()).await.crashes, 0);
}

async fn a_run_of_the_last_crash_class_is_tried_alone(rig: Rig) {
    #[workflow]
    async fn two_blocks(ctx: Context) -> Result<(), Error> {
        ctx.blocked("first").await?;
        ctx.blocked("second").await.map(drop)
    }
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(rig.client.start(two_blocks, ()).await.unwrap());
    }
    for crash in 1..=4 {
        let worker = rig.worker(two_blocks).await;
        rig.desk.until("began first", 2 * crash).await;
        rig.crash(worker);
    }
    let _worker = rig.worker(two_blocks).await;
    rig.desk.until("began first", 9).await;
    assert_eq!(rig.client.counts().await.unwrap()[&Status::Running], 1);
    // The first is no suspect any more when its step has ended, though it goes on.
    rig.desk.open("first");
    rig.desk.until("began second", 2).await;
    rig.desk.open("second");
    for run in runs {
        run.output().await.unwrap();
    }
}
