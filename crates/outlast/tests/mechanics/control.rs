//! Control: keyed sends, wakes, terminates and prunes, with and without workers and code.

use outlast::core::limits::{POISON_CRASHES, PRUNE_RUNS_MAX};
use outlast::prelude::*;
use outlast::{Cancel, ErrorKind, OpNumber, OperationStatus, RunId, Status, StuckReason, Timestamp};

use super::faulty_world::Call;
use super::test_engine::{SESSION, StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_keyed_send_is_delivered_once,
    a_keyed_send_may_be_repeated_after_the_end,
    the_headers_of_a_send_are_kept,
    bad_sends_are_errors_at_the_await,
    a_wake_ends_all_open_sleeps,
    a_wake_of_one_timer_leaves_the_others,
    a_timer_that_lost_a_race_which_was_woken_is_shown_as_dropped,
    a_wake_leaves_timeouts_and_pauses_as_they_are,
    a_wake_of_one_step_makes_its_next_attempt_now,
    a_wake_is_for_the_sleeps_of_its_moment,
    a_wake_without_a_worker_counts,
    a_wake_of_an_ended_run_is_a_conflict,
    terminate_ends_a_run_that_waits,
    terminate_ends_a_run_whose_step_is_under_way,
    terminate_ends_a_stuck_run,
    terminate_ends_a_poisoned_run_without_a_worker,
    terminate_ends_a_run_that_had_no_turn,
    terminate_ends_a_run_whose_code_is_gone,
    terminate_needs_no_worker,
    terminate_beats_messages_before_it,
    terminate_is_idempotent,
    an_accepted_cancel_is_no_error_whatever_follows,
    terminate_survives_a_lost_answer,
    terminate_of_an_unknown_run_is_refused,
    terminate_tells_children_and_parent,
    terminate_without_a_worker_reaches_children_that_were_not_begun,
    many_terminates_at_once_need_no_worker,
    a_full_worker_still_ends_runs_that_need_no_code,
    cancels_and_wakes_that_change_nothing_leave_no_events,
    a_wake_before_the_begin_skips_no_sleep,
    a_run_is_cancelled_before_its_first_turn,
    prune_deletes_runs_that_ended_before_a_time,
    prune_goes_through_more_than_one_part,
    prune_needs_no_code,
}

#[workflow]
async fn take_two(ctx: Context) -> Result<(u32, u32), Error> {
    Ok((ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?))
}

#[workflow]
async fn sleepy(ctx: Context) -> Result<(), Error> {
    ctx.sleep("30d").await
}

async fn a_keyed_send_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(take_two).await;
    let (run, other) = (engine.client.start(take_two, ()).await, engine.client.start(take_two, ()).await);
    let (run, other) = (run.unwrap(), other.unwrap());
    engine.faults.lose_answer(Call::Send, 0);
    run.send("x", &1).key("delivery-1").await.unwrap();
    run.send("x", &1).key("delivery-1").await.unwrap();
    run.send("x", &99).key("delivery-1").await.unwrap();
    engine.settle().await;
    run.send("x", &98).key("delivery-1").await.unwrap();
    other.send("x", &3).key("delivery-1").await.unwrap();
    assert_eq!((engine.view(run.id()).await.sent, engine.view(other.id()).await.sent), (1, 1));
    run.send("x", &2).key("delivery-2").await.unwrap();
    assert_eq!(run.output().await.unwrap(), (1, 2));
    other.send("x", &4).await.unwrap();
    assert_eq!(other.output().await.unwrap(), (3, 4));
}

async fn a_keyed_send_may_be_repeated_after_the_end(engine: TestEngine) {
    let _worker = engine.worker(take_two).await;
    let run = engine.client.start(take_two, ()).await.unwrap();
    run.send("x", &1).key("a").await.unwrap();
    run.send("x", &2).key("b").await.unwrap();
    run.output().await.unwrap();
    run.send("x", &2).key("b").await.unwrap();
    assert!(run.send("x", &3).key("c").await.unwrap_err().is_conflict());
}

async fn the_headers_of_a_send_are_kept(engine: TestEngine) {
    let run = engine.client.start(take_two, ()).await.unwrap();
    run.send("x", &1).header("who", "ada").header("trace", "7").await.unwrap();
    let inbox = engine.world.inbox(run.id(), 0).await.unwrap();
    assert_eq!(format!("{:?}", inbox[0].headers), r#"{"trace": "7", "who": "ada"}"#);
}

async fn bad_sends_are_errors_at_the_await(engine: TestEngine) {
    let run = engine.client.start(take_two, ()).await.unwrap();
    let (invalid, limit) = (ErrorKind::Invalid, ErrorKind::Limit);
    let calls = [
        (run.send("", &1), invalid),
        (run.send("x", &1).key(""), invalid),
        (run.send("x", &1).key("k".repeat(257)), limit),
        (run.send("n".repeat(129), &1), limit),
        (run.send("x", &1).header("h", "v".repeat(20_000)), limit),
        (run.send("x", &"x".repeat(5_000_000)), limit),
        (engine.client.send(RunId::from_bits(7), "x", &1), ErrorKind::NotFound),
    ];
    for (call, expected) in calls {
        let error = call.await.unwrap_err();
        assert_eq!(error.kind(), expected, "{error}");
    }
    assert_eq!(engine.view(run.id()).await.sent, 0);
}

async fn a_wake_ends_all_open_sleeps(engine: TestEngine) {
    #[workflow]
    async fn two_sleeps(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.sleep("1d"), ctx.sleep("2d"))?;
        ctx.note("awake").await?;
        Ok(())
    }
    let _worker = engine.worker(two_sleeps).await;
    let run = engine.client.start(two_sleeps, ()).await.unwrap();
    engine.run_to("1h").await;
    run.wake().await.unwrap();
    run.output().await.unwrap();
    assert_eq!(engine.steps.times("awake"), ["1h"]);
    engine
        .assert_history(
            run.id(),
            "0 timer_started 1d
         1 timer_started 2d
         timer_woken 0,1
         2 step_started note
         2 step_completed \"awake\"
         run_completed null",
        )
        .await;
}

async fn a_timer_that_lost_a_race_which_was_woken_is_shown_as_dropped(engine: TestEngine) {
    #[workflow]
    async fn race(ctx: Context) -> Result<u32, Error> {
        let first = select! {
            slept = ctx.sleep("1d") => slept.map(|()| 1),
            slept = ctx.sleep("2d") => slept.map(|()| 2),
        };
        ctx.note("won").await?;
        first
    }
    let _worker = engine.worker(race).await;
    let run = engine.client.start(race, ()).await.unwrap();
    engine.settle().await;
    run.wake().await.unwrap();
    assert_eq!(run.output().await.unwrap(), 1);
    let timers = engine.client.timers(run.id()).await.unwrap();
    let statuses: Vec<_> = timers.iter().map(|timer| timer.status).collect();
    assert_eq!(statuses, [OperationStatus::Completed, OperationStatus::Dropped]);
}

async fn a_wake_of_one_timer_leaves_the_others(engine: TestEngine) {
    #[workflow]
    async fn race(ctx: Context) -> Result<u32, Error> {
        let (short, long) = (ctx.sleep("1d"), ctx.sleep("2d"));
        select! {
            slept = short => slept.map(|()| 1),
            slept = long => slept.map(|()| 2),
        }
    }
    let _worker = engine.worker(race).await;
    let run = engine.client.start(race, ()).await.unwrap();
    engine.settle().await;
    let timers = engine.client.timers(run.id()).await.unwrap();
    engine.client.wake_timer(run.id(), OpNumber(99)).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.client.wake_timer(run.id(), timers[1].op).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn a_wake_leaves_timeouts_and_pauses_as_they_are(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<u32, Error> {
        let (hook, attempt) = join!(ctx.hook::<u32>("x").timeout("1h"), ctx.flaky(2));
        assert!(hook.is_err_and(|error| error.is_timeout()));
        attempt
    }
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    run.wake().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.steps.times("flaky"), ["0s", "1s", "3s"]);
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("1h")));
}

async fn a_wake_of_one_step_makes_its_next_attempt_now(engine: TestEngine) {
    #[workflow]
    async fn persistent(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(2).await
    }
    let _worker = engine.worker(persistent).await;
    let run = engine.client.start(persistent, ()).await.unwrap();
    engine.settle().await;
    assert!(engine.view(run.id()).await.is_retrying);
    engine.client.wake_timer(run.id(), OpNumber(0)).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.times("flaky"), ["0s", "0s"]);
    let steps = engine.client.steps(run.id()).await.unwrap();
    let attempts: Vec<_> =
        steps[0].attempts.iter().map(|attempt| (attempt.number, attempt.ended_at.is_some())).collect();
    assert_eq!(attempts, [(1, true), (2, true), (3, false)]);
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.steps.times("flaky"), ["0s", "0s", "2s"], "the next pause is not affected");
}

async fn a_wake_is_for_the_sleeps_of_its_moment(engine: TestEngine) {
    #[workflow]
    async fn twice(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await?;
        ctx.sleep("1h").await
    }
    let _worker = engine.worker(twice).await;
    let run = engine.client.start(twice, ()).await.unwrap();
    engine.settle().await;
    run.wake().await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    assert_eq!(
        engine.view(run.id()).await.ended_at,
        Some(engine.time_after_begin("1h")),
        "the second sleep was slept"
    );
}

async fn a_wake_without_a_worker_counts(engine: TestEngine) {
    let worker = engine.worker(sleepy).await;
    let run = engine.client.start(sleepy, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.wake().await.unwrap();
    let _worker = engine.worker(sleepy).await;
    run.output().await.unwrap();
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("0s")));
}

async fn a_wake_of_an_ended_run_is_a_conflict(engine: TestEngine) {
    let run = engine.client.start(sleepy, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert!(run.wake().await.unwrap_err().is_conflict());
    assert!(engine.client.wake_timer(run.id(), OpNumber(0)).await.unwrap_err().is_conflict());
    let unknown = engine.client.wake(RunId::from_bits(7)).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
}

#[workflow]
async fn cleans_up(ctx: Context) -> Result<(), Error> {
    let slept = ctx.sleep("30d").await;
    ctx.shielded().note("cleaned up").await?;
    slept
}

async fn assert_terminated<O: serde::de::DeserializeOwned + std::fmt::Debug>(
    engine: &TestEngine,
    run: &RunHandle<O>,
) {
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string() == "terminated: enough", "{error}");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.owner, view.stuck), (Status::Cancelled, None, None));
    assert!(engine.history(run.id()).await.ends_with("run_terminated terminated: enough"));
}

async fn terminate_ends_a_run_that_waits(engine: TestEngine) {
    let _worker = engine.worker(cleans_up).await;
    let run = engine.client.start(cleans_up, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.terminate("enough").await.unwrap(), Cancel::Requested);
    assert_terminated(&engine, &run).await;
    engine.clock.run_until_idle().await;
    assert_eq!(engine.steps.logged(), Vec::<String>::new(), "its code was not asked");
}

async fn terminate_ends_a_run_whose_step_is_under_way(engine: TestEngine) {
    #[workflow]
    async fn busy(ctx: Context) -> Result<String, Error> {
        let (done, _) = try_join!(ctx.blocked("deaf"), ctx.stoppable("work"))?;
        Ok(done)
    }
    let _worker = engine.worker(busy).await;
    let run = engine.client.start(busy, ()).await.unwrap();
    engine.steps.wait_for_log("began deaf", 1).await;
    engine.steps.wait_for_log("began work", 1).await;
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
    engine.steps.wait_for_log("stopped work", 1).await;
    engine.steps.open("deaf");
    engine.steps.wait_for_log("ended deaf", 1).await;
    engine.settle().await;
    assert_terminated(&engine, &run).await;
}

async fn stuck_run(engine: &TestEngine) -> RunHandle<()> {
    #[workflow(name = "panics")]
    async fn panics(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await?;
        panic!("a bug")
    }
    let _worker = engine.worker(panics).await;
    let run = engine.client.start(panics, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Panicked);
    _worker.stop().await.unwrap();
    run
}

async fn terminate_ends_a_stuck_run(engine: TestEngine) {
    let run = stuck_run(&engine).await;
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
    let run = stuck_run(&engine).await;
    let _stranger = engine.worker(sleepy).await;
    run.terminate("enough").await.unwrap();
    engine.settle().await;
    assert_terminated(&engine, &run).await;
}

async fn terminate_ends_a_poisoned_run_without_a_worker(engine: TestEngine) {
    #[workflow]
    async fn poison(ctx: Context) -> Result<String, Error> {
        ctx.blocked("crash").await
    }
    let run = engine.client.start(poison, ()).await.unwrap();
    for crash in 1..=POISON_CRASHES as usize {
        let worker = engine.worker(poison).await;
        engine.steps.wait_for_log("began crash", crash).await;
        engine.crash(worker);
    }
    let watcher = engine.worker(sleepy).await;
    engine.wait_for_status(run.id(), Status::Stuck).await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::Poison);
    watcher.stop().await.unwrap();
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
}

async fn terminate_ends_a_run_that_had_no_turn(engine: TestEngine) {
    let run = engine.client.start(sleepy, ()).await.unwrap();
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
    engine.assert_history(run.id(), "run_terminated terminated: enough").await;
}

async fn terminate_ends_a_run_whose_code_is_gone(engine: TestEngine) {
    let worker = engine.worker(cleans_up).await;
    let run = engine.client.start(cleans_up, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _stranger = engine.worker(sleepy).await;
    run.terminate("enough").await.unwrap();
    engine.settle().await;
    assert_terminated(&engine, &run).await;
}

async fn terminate_needs_no_worker(engine: TestEngine) {
    let worker = engine.worker(cleans_up).await;
    let waiting = engine.client.start(cleans_up, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    waiting.terminate("enough").await.unwrap();
    assert_terminated(&engine, &waiting).await;

    #[workflow]
    async fn held(ctx: Context) -> Result<String, Error> {
        ctx.blocked("gate").await
    }
    let worker = engine.worker(held).await;
    let run = engine.client.start(held, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    worker.crash();
    engine.clock.advance(SESSION);
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
    assert!(engine.client.workers().await.unwrap().is_empty(), "the client has left");
}

async fn terminate_beats_messages_before_it(engine: TestEngine) {
    let worker = engine.worker(take_two).await;
    let run = engine.client.start(take_two, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    for payload in 0..1_500 {
        engine.send(run.id(), "y", payload).await;
    }
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
}

async fn an_accepted_cancel_is_no_error_whatever_follows(engine: TestEngine) {
    let run = engine.client.start(sleepy, ()).await.unwrap();
    engine.faults.refuse(Call::Join, 0);
    assert_eq!(run.cancel("no more").await.unwrap(), Cancel::Requested);
    assert_eq!(engine.status(run.id()).await, Status::Pending, "nobody could end it");
    engine.faults.refuse(Call::Leave, 0);
    assert_eq!(run.terminate("no more").await.unwrap(), Cancel::Requested);
    assert_eq!(engine.faults.left(), 0);
    engine.wait_for_status(run.id(), Status::Cancelled).await;
}

async fn terminate_is_idempotent(engine: TestEngine) {
    let _worker = engine.worker(sleepy).await;
    let run = engine.client.start(sleepy, ()).await.unwrap();
    engine.settle().await;
    let answers = {
        let terminate = || run.terminate("enough").into_future();
        join!(terminate(), terminate(), terminate())
    };
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok());
    assert_terminated(&engine, &run).await;
    let ended = Cancel::AlreadyEnded(Status::Cancelled);
    assert_eq!(run.terminate("again").await.unwrap(), ended);
    assert_eq!(run.cancel("again").await.unwrap(), ended);
    assert_terminated(&engine, &run).await;
}

async fn terminate_survives_a_lost_answer(engine: TestEngine) {
    let _worker = engine.worker(sleepy).await;
    let run = engine.client.start(sleepy, ()).await.unwrap();
    engine.settle().await;
    engine.faults.lose_answer(Call::Send, 0);
    assert_eq!(run.terminate("enough").await.unwrap(), Cancel::Requested);
    assert_terminated(&engine, &run).await;
}

async fn terminate_of_an_unknown_run_is_refused(engine: TestEngine) {
    let error = engine.client.terminate(RunId::from_bits(7), "enough").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let run = engine.client.start(sleepy, ()).await.unwrap();
    let error = run.terminate(&"r".repeat(5_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

#[workflow]
async fn parent(ctx: Context) -> Result<String, Error> {
    match ctx.child(middle, ()).await {
        Ok(()) => Ok("fine".into()),
        Err(error) => Ok(format!("{error}, cancelled: {}", error.is_cancelled())),
    }
}

#[workflow]
async fn middle(ctx: Context) -> Result<(), Error> {
    let (cleaned, slept) = join!(ctx.child(cleans_up, ()), ctx.child(sleepy, ()));
    cleaned.and(slept)
}

async fn run_of(engine: &TestEngine, workflow: &str) -> RunId {
    engine.client.list().workflow_named(workflow).await.unwrap().runs[0].id
}

async fn terminate_tells_children_and_parent(engine: TestEngine) {
    let _worker = engine.worker((parent, middle, cleans_up, sleepy)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    let middle = engine.client.handle::<()>(run_of(&engine, "middle").await);
    middle.terminate("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "terminated: enough, cancelled: true");
    engine.settle().await;
    for workflow in ["cleans_up", "sleepy"] {
        assert_eq!(engine.status(run_of(&engine, workflow).await).await, Status::Cancelled, "{workflow}");
    }
    assert_eq!(engine.steps.count("cleaned up"), 1, "a child is cancelled, not terminated");
}

async fn terminate_without_a_worker_reaches_children_that_were_not_begun(engine: TestEngine) {
    let worker = engine.worker(middle).await;
    let run = engine.client.start(middle, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.terminate("enough").await.unwrap();
    assert_terminated(&engine, &run).await;
    for workflow in ["cleans_up", "sleepy"] {
        assert_eq!(engine.status(run_of(&engine, workflow).await).await, Status::Cancelled, "{workflow}");
    }
}

async fn a_run_is_cancelled_before_its_first_turn(engine: TestEngine) {
    let run = engine.client.start(parent, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    let _stranger = engine.worker(sleepy).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!(error.to_string(), "cancelled: enough");
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 2, "no child was started");
}

async fn prune_deletes_runs_that_ended_before_a_time(engine: TestEngine) {
    let worker = engine.worker((sleepy, take_two)).await;
    let early = engine.client.start(take_two, ()).key("early").tag("t", "v").await.unwrap();
    for payload in [1, 2] {
        engine.send(early.id(), "x", payload).await;
    }
    early.output().await.unwrap();
    engine.run_to("1h").await;
    let late = engine.client.start(sleepy, ()).key("late").await.unwrap();
    late.cancel("enough").await.unwrap();
    assert!(late.output().await.is_err());
    let waits = engine.client.start(sleepy, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(
        engine.client.prune(engine.time_after_begin("0s")).await.unwrap(),
        0,
        "at the moment is not before it"
    );
    assert_eq!(engine.client.prune(engine.time_after_begin("1h")).await.unwrap(), 1);
    assert_eq!(engine.client.run(early.id()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(engine.client.history(early.id()).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(engine.client.find::<()>("early").await.unwrap().is_none());
    assert!(engine.client.list().tag("t", "v").await.unwrap().runs.is_empty());
    assert_eq!(engine.client.counts().await.unwrap().get(&Status::Completed).copied().unwrap_or(0), 0);
    assert!(engine.client.start(take_two, ()).key("early").await.unwrap().is_new(), "the key is free");
    assert_eq!(engine.client.prune(Timestamp::NEVER).await.unwrap(), 1, "what has not ended stays");
    assert_eq!(engine.status(waits.id()).await, Status::Waiting);
    waits.wake().await.unwrap();
    waits.output().await.unwrap();
    worker.stop().await.unwrap();
}

async fn prune_goes_through_more_than_one_part(engine: TestEngine) {
    #[workflow]
    async fn quick(_ctx: Context, _number: u32) -> Result<(), Error> {
        Ok(())
    }
    let count = 2 * PRUNE_RUNS_MAX as u32 + 300;
    let started = engine.client.start_many(quick, 0..count).await;
    let kept = engine.client.start(sleepy, ()).await.unwrap();
    let _worker = engine.worker(quick).await;
    for run in started {
        run.unwrap().output().await.unwrap();
    }
    engine.run_to("1h").await;
    assert_eq!(engine.client.prune(engine.time_after_begin("1h")).await.unwrap(), u64::from(count));
    assert_eq!(engine.client.prune(engine.time_after_begin("1h")).await.unwrap(), 0);
    assert_eq!(engine.client.list().await.unwrap().runs[0].id, kept.id());
}

async fn prune_needs_no_code(engine: TestEngine) {
    let run = engine.client.start(sleepy, ()).await.unwrap();
    run.terminate("enough").await.unwrap();
    engine.run_to("1h").await;
    assert_eq!(engine.client.prune(engine.time_after_begin("1h")).await.unwrap(), 1);
    assert_eq!(run.view().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::NotFound);
}

async fn many_terminates_at_once_need_no_worker(engine: TestEngine) {
    #[workflow]
    async fn nap(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await
    }
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(engine.client.start(nap, ()).await.unwrap());
    }
    let ends = runs.iter().enumerate().map(async |(number, run)| match number % 2 {
        0 => run.terminate("all at once").await.unwrap(),
        _ => run.cancel("all at once").await.unwrap(),
    });
    join_all(ends).await;
    for run in &runs {
        assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    }
}

async fn a_full_worker_still_ends_runs_that_need_no_code(engine: TestEngine) {
    #[workflow]
    async fn hog(ctx: Context) -> Result<String, Error> {
        ctx.blocked("hog").await
    }
    #[workflow]
    async fn nap(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await
    }
    let _worker = engine.builder().register((hog, nap)).live_runs(1).start().await.unwrap();
    let waiting = engine.client.start(nap, ()).await.unwrap();
    engine.settle().await;
    let busy = engine.client.start(hog, ()).await.unwrap();
    engine.steps.wait_for_log("began hog", 1).await;
    let pending = engine.client.start(nap, ()).await.unwrap();
    waiting.terminate("no more").await.unwrap();
    pending.cancel("no more").await.unwrap();
    engine.wait_for_status(waiting.id(), Status::Cancelled).await;
    engine.wait_for_status(pending.id(), Status::Cancelled).await;
    engine.steps.open("hog");
    assert_eq!(busy.output().await.unwrap(), "hog");
}

async fn cancels_and_wakes_that_change_nothing_leave_no_events(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<(), Error> {
        let answer = ctx.hook::<()>("never").await;
        ctx.shielded().sleep("1h").await?;
        answer
    }
    let _worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).await.unwrap();
    engine.settle().await;
    for _ in 0..3 {
        run.wake().await.unwrap();
        engine.settle().await;
    }
    for answer in [Cancel::Requested, Cancel::AlreadyRequested, Cancel::AlreadyRequested] {
        assert_eq!(run.cancel("enough").await.unwrap(), answer);
        engine.settle().await;
    }
    engine.run_to("1h").await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    let view = engine.view(run.id()).await;
    assert_eq!(view.sent, view.consumed);
    engine
        .assert_history(
            run.id(),
            "0 hook_opened never
         cancel_requested enough
         1 timer_started 1h
         1 timer_fired
         run_cancelled cancelled: enough",
        )
        .await;
}

async fn a_wake_before_the_begin_skips_no_sleep(engine: TestEngine) {
    #[workflow]
    async fn nap(ctx: Context) -> Result<String, Error> {
        ctx.sleep("1h").await?;
        Ok(ctx.now().to_string())
    }
    let _worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).after("1d").await.unwrap();
    run.wake().await.unwrap();
    engine.run_to("25h").await;
    assert_eq!(run.output().await.unwrap(), engine.time_after_begin("25h").to_string());
}
