//! Regression tests.

use outlast::core::{Event, WorldError};
use outlast::prelude::*;
use outlast::{ErrorKind, Status, StuckReason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::faulty_world::Call;
use super::test_engine::{SESSION, StepCalls, StepState, TestEngine, on_every_world, with_timeout};

on_every_world! {
    messages_keep_their_order_though_the_clock_was_set_back,
    a_step_whose_worker_is_lost_after_the_cancel_is_not_attempted_again,
    a_cancel_during_a_pause_ends_it_though_no_worker_was_up,
    a_turn_that_is_answered_with_unavailable_is_repeated_and_not_doubled,
    a_turn_that_was_not_done_is_repeated,
    a_turn_over_a_limit_makes_the_run_stuck,
    an_invalid_turn_makes_the_run_stuck,
    a_panic_in_the_drop_of_a_step_out_of_time_is_contained,
    payloads_of_dropped_hooks_keep_their_order,
    a_cancel_reason_has_a_limit,
    headers_have_a_limit,
    a_panic_in_the_drop_of_a_workflow_does_not_keep_a_worker_from_leaving,
    an_unclaimed_run_is_cancelled_beside_the_session_of_a_crashed_worker,
    a_step_input_may_use_the_context_when_it_is_written,
    a_build_without_a_step_that_a_lost_worker_attempted_leaves_the_run_stuck,
    messages_keep_their_times_when_a_turn_is_computed_again,
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        // A second panic would abort the process.
        assert!(std::thread::panicking(), "a grenade was dropped");
    }
}

/// On a world that applies outboxes later, one that came between a worker's delivery and its claim was slept over.
#[tokio::test]
async fn an_outbox_that_comes_just_before_a_claim_is_delivered_at_once() {
    #[workflow]
    async fn child(_ctx: Context) -> Result<u32, Error> {
        Ok(7)
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        ctx.blocked("gate").await?;
        ctx.child(child, ()).await
    }
    with_timeout(async {
        let engine = TestEngine::deferred();
        let _worker = engine.worker((parent, child)).await;
        let run = engine.client.start(parent, ()).await.unwrap();
        engine.wait_for_history(run.id(), |history| history.contains("step_started")).await;
        let gate = engine.faults.hold(Call::Claim);
        // The worker is notified and claims; its commit continues meanwhile.
        engine.send(run.id(), "nobody", 1).await;
        gate.wait_for_call().await;
        engine.steps.open("gate");
        engine.wait_for_history(run.id(), |history| history.contains("child_started")).await;
        gate.open();
        engine.settle().await;
        assert_eq!(engine.status(run.id()).await, Status::Completed);
    })
    .await;
}

/// A build that lacked the step held the run for ever.
async fn a_build_without_a_step_that_a_lost_worker_attempted_leaves_the_run_stuck(engine: TestEngine) {
    #[workflow]
    async fn moved(ctx: Context) -> Result<String, Error> {
        ctx.blocked("gate").await
    }
    let newer = engine.worker_of_build("newer", moved).await;
    let run = engine.client.start(moved, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    engine.crash(newer);
    let older = Worker::builder(engine.world.clone()).state(engine.steps.clone()).session_time(SESSION);
    let _older = older.build("older").register(moved).start().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.stuck(run.id()).await.reason, StuckReason::StepNotRegistered);
    engine.steps.open("gate");
    let _newer = engine.worker_of_build("newer", moved).await;
    assert_eq!(engine.output_after_fix(&run).await, "gate");
}

/// A turn that was refused because of a newer message and computed again gave older messages the times of later ones.
async fn messages_keep_their_times_when_a_turn_is_computed_again(engine: TestEngine) {
    #[workflow]
    async fn listener(ctx: Context) -> Result<(), Error> {
        let hooks = [(); 3].map(|()| ctx.hook::<u32>("x"));
        ctx.sleep("10s").await?;
        join_all(hooks).await;
        Ok(())
    }
    let worker = engine.worker(listener).await;
    let run = engine.client.start(listener, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    for (payload, at) in [(1, "2s"), (2, "5s")] {
        engine.run_to(at).await;
        engine.send(run.id(), "x", payload).await;
    }
    engine.run_to("10s").await;
    let (client, id) = (engine.client.clone(), run.id());
    engine.faults.before_a_timer_fires(async move { client.send(id, "x", &3).await.unwrap() });
    let _worker = engine.worker(listener).await;
    run.output().await.unwrap();
    let turns = engine.turns(run.id()).await;
    let times = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::HookReceived { at, .. } => *at,
        _ => None,
    });
    assert_eq!(times.collect::<Vec<_>>(), ["2s", "5s", "10s"].map(|at| engine.time_after_begin(at)));
}

async fn messages_keep_their_order_though_the_clock_was_set_back(engine: TestEngine) {
    #[workflow]
    async fn listener(ctx: Context) -> Result<Vec<u32>, Error> {
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(ctx.hook::<u32>("x").await?);
        }
        heard.push(ctx.hook::<u32>("last").await?);
        Ok(heard)
    }
    let run = engine.client.start(listener, ()).await.unwrap();
    for (payload, back) in [(1, 0), (2, 10), (3, 5)] {
        engine.inner_clock.set_back(back);
        engine.send(run.id(), "x", payload).await;
    }
    engine.inner_clock.set_back(0);
    let worker = engine.worker(listener).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.consumed, 3);
    worker.stop().await.unwrap();
    let _worker = engine.worker(listener).await;
    engine.send(run.id(), "last", 4).await;
    assert_eq!(run.output().await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(engine.history(run.id()).await.matches("hook_received x").count(), 3);
}

async fn a_step_whose_worker_is_lost_after_the_cancel_is_not_attempted_again(engine: TestEngine) {
    #[workflow]
    async fn telling(ctx: Context) -> Result<String, Error> {
        ctx.blocked("never").await
    }
    let worker = engine.worker(telling).await;
    let run = engine.client.start(telling, ()).await.unwrap();
    engine.steps.wait_for_log("began never", 1).await;
    run.cancel("enough").await.unwrap();
    engine.wait_for_view(run.id(), |view| view.consumed == 1).await;
    engine.crash(worker);
    let _worker = engine.worker(telling).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_maybe_attempted() && error.is_cancelled(), "{error}");
    assert_eq!((error.step(), engine.steps.count("began never")), (Some("blocked"), 1));
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn a_cancel_during_a_pause_ends_it_though_no_worker_was_up(engine: TestEngine) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = engine.worker(hopeless).await;
    let run = engine.client.start(hopeless, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.cancel("enough").await.unwrap();
    engine.advance("1h").await;
    let _worker = engine.worker(hopeless).await;
    engine.advance("1h").await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!((error.step(), error.attempts()), (Some("flaky"), 1));
    assert_eq!(engine.steps.count("flaky"), 1);
}

#[workflow]
async fn note_then_hook(ctx: Context) -> Result<u32, Error> {
    let payload = ctx.hook::<u32>("x").await?;
    ctx.note("a").await?;
    Ok(payload + ctx.hook::<u32>("y").await?)
}

const NOTED: &str = "
    0 hook_opened x
    hook_received x 1
    1 step_started note
    1 step_completed \"a\"
    2 hook_opened y
    hook_received y 2
    run_completed 3";

/// The commit of the run's next turn is answered, turn by turn, with `Unavailable`.
async fn unavailable_turn(engine: &TestEngine, is_done: bool) {
    let _worker = engine.worker(note_then_hook).await;
    let run = engine.client.start(note_then_hook, ()).await.unwrap();
    engine.settle().await;
    engine.faults.answer_each_turn(WorldError::Unavailable("busy".into()), is_done);
    engine.send(run.id(), "x", 1).await;
    engine.steps.wait_for_log("a", 1).await;
    engine.send(run.id(), "y", 2).await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.faults.left(), 0);
    assert_eq!((engine.steps.logged().len(), engine.faults.fenced()), (1, 0));
    engine.assert_history(run.id(), NOTED).await;
}

async fn a_turn_that_is_answered_with_unavailable_is_repeated_and_not_doubled(engine: TestEngine) {
    unavailable_turn(&engine, true).await;
}

async fn a_turn_that_was_not_done_is_repeated(engine: TestEngine) {
    unavailable_turn(&engine, false).await;
}

async fn refused_turn(engine: &TestEngine, error: WorldError) {
    let _worker = engine.worker(note_then_hook).await;
    let run = engine.client.start(note_then_hook, ()).await.unwrap();
    engine.settle().await;
    engine.faults.answer_each_turn(error, false);
    engine.send(run.id(), "x", 1).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Refused);
    assert!(stuck.message.contains("the turn is odd"), "{}", stuck.message);
    assert_eq!(engine.steps.logged().len(), 0);
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "y", 2).await;
    assert_eq!(engine.output_after_fix(&run).await, 3);
    engine.assert_history(run.id(), NOTED).await;
}

async fn a_turn_over_a_limit_makes_the_run_stuck(engine: TestEngine) {
    refused_turn(&engine, WorldError::Limit("the turn is odd".into())).await;
}

async fn an_invalid_turn_makes_the_run_stuck(engine: TestEngine) {
    refused_turn(&engine, WorldError::Invalid("the turn is odd".into())).await;
}

async fn a_panic_in_the_drop_of_a_step_out_of_time_is_contained(engine: TestEngine) {
    #[step(timeout = "1m", attempts = 1)]
    async fn armed(cx: StepContext<StepState>) -> u32 {
        let _grenade = Grenade;
        cx.state().log("armed");
        cx.state().wait_for_gate("never").await;
        1
    }
    #[workflow]
    async fn pair(ctx: Context) -> Result<(bool, String), Error> {
        let (armed, word) = join!(ctx.step(armed, ()), ctx.blocked("other"));
        Ok((armed.is_err_and(|error| error.kind() == ErrorKind::Timeout), word?))
    }
    let _worker = engine.worker((pair, armed)).await;
    let run = engine.client.start(pair, ()).await.unwrap();
    engine.steps.wait_for_log("armed", 1).await;
    engine.steps.wait_for_log("began other", 1).await;
    engine.clock.advance("1m");
    engine.wait_for_history(run.id(), |history| history.contains("0 step_failed")).await;
    engine.steps.open("other");
    assert_eq!(run.output().await.unwrap(), (true, "other".to_owned()));
}

async fn payloads_of_dropped_hooks_keep_their_order(engine: TestEngine) {
    #[workflow]
    async fn forgetful(ctx: Context) -> Result<[u32; 3], Error> {
        let (first, second) = (ctx.hook::<u32>("x"), ctx.hook::<u32>("x"));
        ctx.hook::<u32>("go").await?;
        drop(first);
        drop(second);
        Ok([ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?])
    }
    let _worker = engine.worker(forgetful).await;
    let run = engine.client.start(forgetful, ()).await.unwrap();
    for (hook, payload) in [("x", 1), ("x", 2), ("go", 0), ("x", 3)] {
        engine.settle().await;
        engine.send(run.id(), hook, payload).await;
    }
    assert_eq!(run.output().await.unwrap(), [1, 2, 3]);
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1d").await
}

async fn a_cancel_reason_has_a_limit(engine: TestEngine) {
    let run = engine.client.start(sleeper, ()).await.unwrap();
    let error = run.cancel(&"x".repeat(4 * 1024 + 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    run.cancel(&"x".repeat(4 * 1024)).await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn headers_have_a_limit(engine: TestEngine) {
    let half = "x".repeat(8 * 1024 - 1);
    engine.client.start(sleeper, ()).header("a", &*half).header("b", &*half).await.unwrap();
    let call = engine.client.start(sleeper, ()).header("a", &*half).header("b", &*half).header("c", "");
    let error = call.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

async fn a_panic_in_the_drop_of_a_workflow_does_not_keep_a_worker_from_leaving(engine: TestEngine) {
    #[workflow]
    async fn armed(ctx: Context) -> Result<u32, Error> {
        let grenade = Grenade;
        let payload = ctx.hook::<u32>("x").await?;
        std::mem::forget(grenade);
        Ok(payload)
    }
    let worker = engine.caching_builder().register(armed).start().await.unwrap();
    let run = engine.client.start(armed, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    assert_eq!(engine.client.workers().await.unwrap().len(), 0);
    let _worker = engine.worker(armed).await;
    engine.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn an_unclaimed_run_is_cancelled_beside_the_session_of_a_crashed_worker(engine: TestEngine) {
    let worker = engine.worker(note_then_hook).await;
    engine.settle().await;
    worker.crash();
    engine.clock.advance(SESSION * 2);
    assert_eq!(engine.client.workers().await.unwrap().len(), 1, "nobody has noticed the crash yet");
    let run = engine.client.start(sleeper, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
    assert_eq!(engine.client.workers().await.unwrap().len(), 0);
}

/// An input whose serialization asks the run for the time.
struct Stamp(Option<Context>);

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.0.as_ref().is_some_and(|ctx| ctx.now() == ctx.now()))
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bool::deserialize(deserializer).map(|_| Self(None))
    }
}

async fn a_step_input_may_use_the_context_when_it_is_written(engine: TestEngine) {
    #[workflow]
    async fn stamping(ctx: Context) -> Result<u32, Error> {
        let stamp = Stamp(Some(ctx.clone()));
        ctx.call("stamp", stamp, async |_: Stamp| Ok::<u32, StepError>(7)).await
    }
    let _worker = engine.worker(stamping).await;
    let run = engine.client.start(stamping, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
}
