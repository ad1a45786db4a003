//! Bugs that were found once, and must not come back.

use outlast::core::{Event, WorldError};
use outlast::prelude::*;
use outlast::{ErrorKind, Status, StuckReason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::faulty::Call;
use super::rig::{Ask, Desk, Rig, SESSION, in_time, on_every_world};

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
    a_run_nobody_had_is_cancelled_beside_the_session_of_a_crashed_worker,
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
    in_time(async {
        let rig = Rig::deferred();
        let _worker = rig.worker((parent, child)).await;
        let run = rig.client.start(parent, ()).await.unwrap();
        rig.until_history(run.id(), |history| history.contains("step_started")).await;
        let gate = rig.faults.hold(Call::Claim);
        // The worker hears of it and claims; its commit goes on meanwhile.
        rig.send(run.id(), "nobody", 1).await;
        gate.arrived().await;
        rig.desk.open("gate");
        rig.until_history(run.id(), |history| history.contains("child_started")).await;
        gate.open();
        rig.settle().await;
        assert_eq!(rig.status(run.id()).await, Status::Completed);
    })
    .await;
}

/// The build that lacked the step held the run for ever and did nothing.
async fn a_build_without_a_step_that_a_lost_worker_attempted_leaves_the_run_stuck(rig: Rig) {
    #[workflow]
    async fn moved(ctx: Context) -> Result<String, Error> {
        ctx.blocked("gate").await
    }
    let newer = rig.worker_of_build("newer", moved).await;
    let run = rig.client.start(moved, ()).await.unwrap();
    rig.desk.until("began gate", 1).await;
    rig.crash(newer);
    let older = Worker::builder(rig.world.clone()).state(rig.desk.clone()).session_time(SESSION);
    let _older = older.build("older").register(moved).start().await.unwrap();
    rig.settle().await;
    assert_eq!(rig.stuck(run.id()).await.reason, StuckReason::StepNotRegistered);
    rig.desk.open("gate");
    let _newer = rig.worker_of_build("newer", moved).await;
    assert_eq!(rig.mended(&run).await, "gate");
}

/// A turn that was refused because of a newer message, and computed again, gave older messages the time of later ones.
async fn messages_keep_their_times_when_a_turn_is_computed_again(rig: Rig) {
    #[workflow]
    async fn listener(ctx: Context) -> Result<(), Error> {
        let hooks = [(); 3].map(|()| ctx.hook::<u32>("x"));
        ctx.sleep("10s").await?;
        join_all(hooks).await;
        Ok(())
    }
    let worker = rig.worker(listener).await;
    let run = rig.client.start(listener, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    for (payload, at) in [(1, "2s"), (2, "5s")] {
        rig.run_to(at).await;
        rig.send(run.id(), "x", payload).await;
    }
    rig.run_to("10s").await;
    let (client, id) = (rig.client.clone(), run.id());
    rig.faults.before_a_timer_fires(async move { client.send(id, "x", &3).await.unwrap() });
    let _worker = rig.worker(listener).await;
    run.output().await.unwrap();
    let turns = rig.turns(run.id()).await;
    let times = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::HookReceived { at, .. } => *at,
        _ => None,
    });
    assert_eq!(times.collect::<Vec<_>>(), ["2s", "5s", "10s"].map(|at| rig.moment(at)));
}

async fn messages_keep_their_order_though_the_clock_was_set_back(rig: Rig) {
    #[workflow]
    async fn listener(ctx: Context) -> Result<Vec<u32>, Error> {
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(ctx.hook::<u32>("x").await?);
        }
        heard.push(ctx.hook::<u32>("last").await?);
        Ok(heard)
    }
    let run = rig.client.start(listener, ()).await.unwrap();
    for (payload, back) in [(1, 0), (2, 10), (3, 5)] {
        rig.inner_clock.set_back(back);
        rig.send(run.id(), "x", payload).await;
    }
    rig.inner_clock.set_back(0);
    let worker = rig.worker(listener).await;
    rig.settle().await;
    assert_eq!(rig.view(run.id()).await.consumed, 3);
    worker.stop().await.unwrap();
    let _worker = rig.worker(listener).await;
    rig.send(run.id(), "last", 4).await;
    assert_eq!(run.output().await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(rig.history(run.id()).await.matches("hook_received x").count(), 3);
}

async fn a_step_whose_worker_is_lost_after_the_cancel_is_not_attempted_again(rig: Rig) {
    #[workflow]
    async fn telling(ctx: Context) -> Result<String, Error> {
        ctx.blocked("never").await
    }
    let worker = rig.worker(telling).await;
    let run = rig.client.start(telling, ()).await.unwrap();
    rig.desk.until("began never", 1).await;
    run.cancel("enough").await.unwrap();
    rig.until_view(run.id(), |view| view.consumed == 1).await;
    rig.crash(worker);
    let _worker = rig.worker(telling).await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_maybe_attempted() && error.is_cancelled(), "{error}");
    assert_eq!((error.step(), rig.desk.count("began never")), (Some("blocked"), 1));
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
}

async fn a_cancel_during_a_pause_ends_it_though_no_worker_was_up(rig: Rig) {
    #[workflow]
    async fn hopeless(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let worker = rig.worker(hopeless).await;
    let run = rig.client.start(hopeless, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    run.cancel("enough").await.unwrap();
    rig.pass("1h").await;
    let _worker = rig.worker(hopeless).await;
    rig.pass("1h").await;
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert_eq!((error.step(), error.attempts()), (Some("flaky"), 1));
    assert_eq!(rig.desk.count("flaky"), 1);
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
async fn unavailable_turn(rig: &Rig, is_done: bool) {
    let _worker = rig.worker(note_then_hook).await;
    let run = rig.client.start(note_then_hook, ()).await.unwrap();
    rig.settle().await;
    rig.faults.answer_each_turn(WorldError::Unavailable("busy".into()), is_done);
    rig.send(run.id(), "x", 1).await;
    rig.desk.until("a", 1).await;
    rig.send(run.id(), "y", 2).await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(rig.faults.left(), 0);
    assert_eq!((rig.desk.notes().len(), rig.faults.fenced()), (1, 0));
    rig.assert_history(run.id(), NOTED).await;
}

async fn a_turn_that_is_answered_with_unavailable_is_repeated_and_not_doubled(rig: Rig) {
    unavailable_turn(&rig, true).await;
}

async fn a_turn_that_was_not_done_is_repeated(rig: Rig) {
    unavailable_turn(&rig, false).await;
}

async fn refused_turn(rig: &Rig, error: WorldError) {
    let _worker = rig.worker(note_then_hook).await;
    let run = rig.client.start(note_then_hook, ()).await.unwrap();
    rig.settle().await;
    rig.faults.answer_each_turn(error, false);
    rig.send(run.id(), "x", 1).await;
    rig.settle().await;
    let stuck = rig.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Refused);
    assert!(stuck.message.contains("the turn is odd"), "{}", stuck.message);
    assert_eq!(rig.desk.notes().len(), 0);
    rig.client.resume(run.id()).await.unwrap();
    rig.settle().await;
    rig.send(run.id(), "y", 2).await;
    assert_eq!(rig.mended(&run).await, 3);
    rig.assert_history(run.id(), NOTED).await;
}

async fn a_turn_over_a_limit_makes_the_run_stuck(rig: Rig) {
    refused_turn(&rig, WorldError::Limit("the turn is odd".into())).await;
}

async fn an_invalid_turn_makes_the_run_stuck(rig: Rig) {
    refused_turn(&rig, WorldError::Invalid("the turn is odd".into())).await;
}

async fn a_panic_in_the_drop_of_a_step_out_of_time_is_contained(rig: Rig) {
    #[step(timeout = "1m", attempts = 1)]
    async fn armed(cx: StepContext<Desk>) -> u32 {
        let _grenade = Grenade;
        cx.state().leave("armed");
        cx.state().passed("never").await;
        1
    }
    #[workflow]
    async fn pair(ctx: Context) -> Result<(bool, String), Error> {
        let (armed, word) = join!(ctx.step(armed, ()), ctx.blocked("other"));
        Ok((armed.is_err_and(|error| error.kind() == ErrorKind::Timeout), word?))
    }
    let _worker = rig.worker((pair, armed)).await;
    let run = rig.client.start(pair, ()).await.unwrap();
    rig.desk.until("armed", 1).await;
    rig.desk.until("began other", 1).await;
    rig.clock.advance("1m");
    rig.until_history(run.id(), |history| history.contains("0 step_failed")).await;
    rig.desk.open("other");
    assert_eq!(run.output().await.unwrap(), (true, "other".to_owned()));
}

async fn payloads_of_dropped_hooks_keep_their_order(rig: Rig) {
    #[workflow]
    async fn forgetful(ctx: Context) -> Result<[u32; 3], Error> {
        let (first, second) = (ctx.hook::<u32>("x"), ctx.hook::<u32>("x"));
        ctx.hook::<u32>("go").await?;
        drop(first);
        drop(second);
        Ok([ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?])
    }
    let _worker = rig.worker(forgetful).await;
    let run = rig.client.start(forgetful, ()).await.unwrap();
    for (hook, payload) in [("x", 1), ("x", 2), ("go", 0), ("x", 3)] {
        rig.settle().await;
        rig.send(run.id(), hook, payload).await;
    }
    assert_eq!(run.output().await.unwrap(), [1, 2, 3]);
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1d").await
}

async fn a_cancel_reason_has_a_limit(rig: Rig) {
    let run = rig.client.start(sleeper, ()).await.unwrap();
    let error = run.cancel(&"x".repeat(4 * 1024 + 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert_eq!(rig.status(run.id()).await, Status::Pending);
    run.cancel(&"x".repeat(4 * 1024)).await.unwrap();
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
}

async fn headers_have_a_limit(rig: Rig) {
    let half = "x".repeat(8 * 1024 - 1);
    rig.client.start(sleeper, ()).header("a", &*half).header("b", &*half).await.unwrap();
    let call = rig.client.start(sleeper, ()).header("a", &*half).header("b", &*half).header("c", "");
    let error = call.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
}

async fn a_panic_in_the_drop_of_a_workflow_does_not_keep_a_worker_from_leaving(rig: Rig) {
    #[workflow]
    async fn armed(ctx: Context) -> Result<u32, Error> {
        let grenade = Grenade;
        let payload = ctx.hook::<u32>("x").await?;
        std::mem::forget(grenade);
        Ok(payload)
    }
    let worker = rig.caching().register(armed).start().await.unwrap();
    let run = rig.client.start(armed, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    assert_eq!(rig.client.workers().await.unwrap().len(), 0);
    let _worker = rig.worker(armed).await;
    rig.send(run.id(), "x", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_run_nobody_had_is_cancelled_beside_the_session_of_a_crashed_worker(rig: Rig) {
    let worker = rig.worker(note_then_hook).await;
    rig.settle().await;
    worker.crash();
    rig.clock.advance(SESSION * 2);
    assert_eq!(rig.client.workers().await.unwrap().len(), 1, "nobody has noticed the crash yet");
    let run = rig.client.start(sleeper, ()).await.unwrap();
    run.cancel("enough").await.unwrap();
    assert_eq!(rig.status(run.id()).await, Status::Cancelled);
    assert_eq!(rig.client.workers().await.unwrap().len(), 0);
}

/// An input that asks the run for the time while it is written.
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

async fn a_step_input_may_use_the_context_when_it_is_written(rig: Rig) {
    #[workflow]
    async fn stamping(ctx: Context) -> Result<u32, Error> {
        let stamp = Stamp(Some(ctx.clone()));
        ctx.call("stamp", stamp, async |_: Stamp| Ok::<u32, StepError>(7)).await
    }
    let _worker = rig.worker(stamping).await;
    let run = rig.client.start(stamping, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
}
