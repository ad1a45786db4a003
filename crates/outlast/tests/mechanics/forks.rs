//! Forks: new runs with the events of others before a cut.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, ForkCall, MemoryWorld, OpNumber, RunHandle, RunId, Status, Timestamp, Undo, World};
use outlast_testkit::TestClock;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_fork_runs_what_was_open_and_no_completed_step,
    recorded_values_times_and_random_numbers_are_the_same,
    a_fork_of_the_start_alone_runs_everything_again,
    the_cut_may_be_between_two_requests,
    a_fork_is_forked_between_its_own_requests,
    a_step_gets_another_output,
    several_operations_get_other_outputs,
    an_outcome_that_was_given_counts_although_the_step_is_cancelled,
    a_hook_and_a_child_get_other_outputs,
    a_recorded_value_is_replaced_where_it_is,
    an_open_queued_step_is_a_new_run_unless_it_gets_an_output,
    a_child_that_has_begun_refuses_the_fork,
    open_waits_have_their_full_time_again,
    a_stuck_run_is_rescued_before_its_divergence,
    a_fork_of_a_fork_keeps_the_seed,
    a_worker_that_is_lost_before_the_fork_is_recorded_changes_nothing,
    a_fork_is_idempotent_and_shows_where_it_comes_from,
    an_id_of_another_fork_is_refused,
    two_callers_with_one_id_get_one_fork_or_a_refusal,
    runs_that_cannot_be_forked_say_why,
    a_step_that_is_attempted_at_most_once_needs_force,
}

/// Fails until the test logs `fixed <name>`; waits for the gate of its name if that begins with `slow`.
#[step(attempts = 1)]
pub(super) async fn work(cx: StepContext<StepState>, name: String) -> Result<String, StepError> {
    cx.state().log(format!("began {name}"));
    if name.starts_with("slow") {
        cx.state().wait_for_gate(&name).await;
    }
    let is_bad = name.contains("bad") && cx.state().count(&format!("fixed {name}")) == 0;
    if is_bad { Err(StepError::msg(format!("{name} failed"))) } else { Ok(name) }
}

/// The number of the `nth` event of a kind, from 0.
pub(super) async fn event(engine: &TestEngine, run: RunId, kind: &str, nth: usize) -> u64 {
    let events = engine.client.events(run).await.unwrap();
    let of_kind: Vec<_> = events.iter().filter(|event| event.event.kind() == kind).collect();
    of_kind.get(nth).unwrap_or_else(|| panic!("{nth} {kind} in {events:#?}")).number
}

/// Forks a run.
pub(super) async fn fork<O: serde::de::DeserializeOwned + 'static>(call: ForkCall<'_, O>) -> RunHandle<O> {
    call.await.unwrap()
}

pub(super) async fn refusal(engine: &TestEngine, run: RunId, at: u64) -> String {
    let error = engine.client.fork::<()>(run).at(at).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let dry = engine.client.fork::<()>(run).at(at).dry_run().await.unwrap_err();
    assert_eq!(dry.to_string(), error.to_string());
    error.to_string()
}

#[workflow]
async fn two_steps(ctx: Context) -> Result<String, Error> {
    let one = ctx.step(work, "one".to_owned()).await?;
    let two = ctx.step(work, "two".to_owned()).await?;
    Ok(format!("{one} {two}"))
}

async fn a_fork_runs_what_was_open_and_no_completed_step(engine: TestEngine) {
    let _worker = engine.worker((two_steps, work)).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    run.output().await.unwrap();
    let history = engine.history(run.id()).await;
    let at = event(&engine, run.id(), "step_completed", 1).await;
    let plan = run.fork().at(at).dry_run().await.unwrap();
    assert_eq!(plan.steps().map(|step| step.op.0).collect::<Vec<_>>(), [1]);
    assert_eq!((plan.at, plan.dropped(), plan.later.len()), (at, 2, 0));
    let fork = fork(run.fork().at(at)).await;
    assert_eq!(fork.output().await.unwrap(), "one two");
    assert_eq!((engine.steps.count("began one"), engine.steps.count("began two")), (1, 2));
    let expected = r#"
        0 step_started work
        0 step_completed "one"
        1 step_started work
        run_forked
        1 step_completed "two"
        run_completed "one two"
        "#;
    engine.assert_history(fork.id(), expected).await;
    assert_eq!(engine.history(run.id()).await, history, "the other run is not changed");
    let (of, copy) = (engine.turns(run.id()).await, engine.turns(fork.id()).await);
    assert_eq!(of[0].at, copy[0].at);
    let counts = engine.client.counts().await.unwrap();
    assert_eq!(counts[&Status::Completed], 2);
}

#[workflow]
async fn lottery(ctx: Context) -> Result<(u64, String, Timestamp, u64), Error> {
    let first = ctx.random();
    let recorded = ctx.record("id", || format!("{:x}", fastrand::u64(..)))?;
    ctx.sleep("1h").await?;
    let now = ctx.now();
    ctx.hook::<u32>("draw").await?;
    Ok((first, recorded, now, ctx.random()))
}

async fn recorded_values_times_and_random_numbers_are_the_same(engine: TestEngine) {
    let _worker = engine.worker(lottery).await;
    let run = engine.client.start(lottery, ()).await.unwrap();
    engine.run_to("2h").await;
    let at = engine.client.events(run.id()).await.unwrap().len() as u64;
    engine.advance("1h").await;
    let fork = fork(run.fork().at(at)).await;
    engine.wait_for_status(fork.id(), Status::Waiting).await;
    engine.send(run.id(), "draw", 1).await;
    engine.send(fork.id(), "draw", 1).await;
    assert_eq!(run.output().await.unwrap(), fork.output().await.unwrap());
}

async fn a_fork_of_the_start_alone_runs_everything_again(engine: TestEngine) {
    #[workflow]
    async fn draws(ctx: Context) -> Result<(u64, Timestamp, String), Error> {
        let drawn = (ctx.random(), ctx.now());
        let worked = ctx.step(work, "one".to_owned()).await?;
        Ok((drawn.0, drawn.1, worked))
    }
    let _worker = engine.worker((draws, work)).await;
    let run = engine.client.start(draws, ()).await.unwrap();
    let first = run.output().await.unwrap();
    engine.advance("1h").await;
    let fork = fork(run.fork().at(1)).await;
    let second = fork.output().await.unwrap();
    assert_eq!((first.0, &first.2), (second.0, &second.2));
    assert_eq!(engine.steps.count("began one"), 2);
    let reason = refusal(&engine, run.id(), 0).await;
    assert!(reason.contains("restart the run instead"), "{reason}");
}

#[workflow]
async fn both(ctx: Context) -> Result<String, Error> {
    let one = ctx.step(work, "one".to_owned());
    let nap = ctx.sleep("1h");
    let two = ctx.step(work, "two".to_owned());
    let (one, nap, two) = futures_util::join!(one, nap, two);
    nap?;
    Ok(format!("{} {}", one?, two?))
}

async fn the_cut_may_be_between_two_requests(engine: TestEngine) {
    let _worker = engine.worker((both, work)).await;
    let run = engine.client.start(both, ()).await.unwrap();
    engine.run_to("2h").await;
    run.output().await.unwrap();
    let at = event(&engine, run.id(), "timer_started", 0).await;
    let fork = fork(run.fork().at(at)).await;
    engine.wait_for_history(fork.id(), |history| history.matches("step_completed").count() == 2).await;
    engine.advance("30m").await;
    assert_eq!(engine.status(fork.id()).await, Status::Waiting, "the timer has its full time");
    engine.advance("31m").await;
    assert_eq!(fork.output().await.unwrap(), "one two");
    let history = engine.history(fork.id()).await;
    assert!(history.starts_with("0 step_started work\nrun_forked\n1 timer_started"), "{history}");
}

async fn a_fork_is_forked_between_its_own_requests(engine: TestEngine) {
    let _worker = engine.worker((both, work)).await;
    let run = engine.client.start(both, ()).await.unwrap();
    engine.run_to("2h").await;
    let first = fork(run.fork().at(event(&engine, run.id(), "timer_started", 0).await)).await;
    engine.run_to("4h").await;
    // Directly behind the event of the first fork, and behind one more request of the same poll.
    for (kind, nth) in [("timer_started", 0), ("step_started", 1)] {
        let at = event(&engine, first.id(), kind, nth).await;
        let second = fork(first.fork().at(at)).await;
        engine.settle().await;
        engine.advance("2h").await;
        assert_eq!(second.output().await.unwrap(), "one two");
        let history = engine.history(second.id()).await;
        assert_eq!(history.matches("run_forked").count(), 2, "{history}");
    }
}

async fn a_step_gets_another_output(engine: TestEngine) {
    let _worker = engine.worker((two_steps, work)).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    run.output().await.unwrap();
    let fork = fork(run.fork().with_output(OpNumber(0), "won")).await;
    assert_eq!(fork.output().await.unwrap(), "won two");
    assert_eq!((engine.steps.count("began one"), engine.steps.count("began two")), (1, 2));
}

#[workflow]
async fn all_of_them(ctx: Context, names: Vec<String>) -> Result<String, Error> {
    let step = |ctx: Context, name: String| async move { ctx.step(work, name).await };
    let all: Result<Vec<_>, _> = ctx.parallel_all(names, 50, step).await.into_iter().collect();
    let all = ctx.step(work, all?.join("+")).await?;
    Ok(all)
}

async fn several_operations_get_other_outputs(engine: TestEngine) {
    let _worker = engine.worker((all_of_them, work)).await;
    let names = ["a", "bad", "c"].map(str::to_owned).to_vec();
    let run = engine.client.start(all_of_them, names).await.unwrap();
    assert!(run.output().await.is_err());
    let fork = run.fork().with_output(OpNumber(1), "b").with_output(OpNumber(2), "d").await.unwrap();
    assert_eq!(fork.output().await.unwrap(), "a+b+d");
    let later = fork.fork().with_output(OpNumber(3), "x").with_output(OpNumber(0), "y").await.unwrap_err();
    assert!(later.to_string().contains("was requested after the outcome of operation 0"), "{later}");
}

async fn an_outcome_that_was_given_counts_although_the_step_is_cancelled(engine: TestEngine) {
    #[step]
    async fn undo(undo: Undo<String, String>) -> Result<(), StepError> {
        drop(undo);
        Ok(())
    }
    #[workflow]
    async fn races(ctx: Context) -> Result<u32, Error> {
        // The one that is slower is cancelled, and its end is awaited.
        select! {
            _ = ctx.step(work, "slow".to_owned()).undo(undo) => (),
            _ = ctx.step(work, "fast".to_owned()) => (),
        }
        ctx.keep();
        ctx.hook::<u32>("later").await
    }
    let _worker = engine.worker((races, work, undo)).await;
    let run = engine.client.start(races, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("operation_cancelled")).await;
    let copy = fork(run.fork().with_output(OpNumber(0), "given").with_output(OpNumber(2), "first")).await;
    engine.wait_for_history(copy.id(), |history| history.contains("hook_opened")).await;
    let history = engine.history(copy.id()).await;
    assert!(history.contains("2 step_completed \"first\"\n0 operation_cancelled"), "{history}");
    assert!(history.contains("0 step_completed \"given\""), "{history}");
    engine.send(copy.id(), "later", 7).await;
    assert_eq!(copy.output().await.unwrap(), 7);
    engine.steps.open("slow");
}

#[tokio::test]
async fn payloads_that_a_fork_is_given_are_not_refused() {
    #[workflow]
    async fn waits(ctx: Context) -> Result<u32, Error> {
        let (one, other) = (ctx.hook::<u32>("one"), ctx.hook::<u32>("other"));
        futures_util::future::try_join(one, other).await.map(|(one, other)| one + other)
    }
    let memory = MemoryWorld::new(Arc::new(TestClock::new()));
    // No payload is accepted that no hook waits for, and a new run waits for nothing.
    memory.limit_hook_payloads(0);
    let world: Arc<dyn World> = Arc::new(memory);
    let _worker = Worker::builder(world.clone()).register(waits).start().await.unwrap();
    let client = Client::new(world);
    let run = client.start(waits, ()).await.unwrap();
    while client.run(run.id()).await.unwrap().status != Status::Waiting {
        pause_between_reads().await;
    }
    let copy = run.fork().with_output(OpNumber(0), &1).with_output(OpNumber(1), &2).await.unwrap();
    assert_eq!(copy.output().await.unwrap(), 3);
}

#[workflow]
async fn named(ctx: Context, name: String) -> Result<String, Error> {
    ctx.step(work, name).await
}

/// Waits for its answer.
#[workflow]
pub(super) async fn answered(ctx: Context) -> Result<String, Error> {
    ctx.note("child began").await?;
    Ok(format!("answered {}", ctx.hook::<u32>("answer").await?))
}

#[workflow]
async fn asks(ctx: Context) -> Result<String, Error> {
    let early = ctx.hook::<u32>("early");
    ctx.sleep("1h").await?;
    let late = ctx.hook::<u32>("late").await?;
    let child = ctx.child(answered, ()).await?;
    Ok(format!("{} {late} {child}", early.await?))
}

async fn a_hook_and_a_child_get_other_outputs(engine: TestEngine) {
    let _worker = engine.worker((asks, answered)).await;
    let run = engine.client.start(asks, ()).await.unwrap();
    engine.send(run.id(), "late", 1).await;
    engine.run_to("2h").await;
    engine.steps.wait_for_log("child began", 1).await;
    // The payload arrived before the hook was opened.
    let hook = fork(run.fork().with_output(OpNumber(2), &7)).await;
    engine.settle().await;
    engine.advance("2h").await;
    engine.steps.wait_for_log("child began", 2).await;
    let given = fork(run.fork().with_output(OpNumber(3), "given")).await;
    engine.send(given.id(), "early", 2).await;
    assert_eq!(given.output().await.unwrap(), "2 1 given");
    for (run, early, expected) in [(&hook, 3, "3 7 answered 3"), (&run, 4, "4 1 answered 4")] {
        let child = engine.client.operations(run.id()).await.unwrap()[3].child.unwrap();
        engine.send(child, "answer", early).await;
        engine.send(run.id(), "early", early).await;
        assert_eq!(run.output().await.unwrap(), expected);
    }
    let timer = run.fork().with_output(OpNumber(1), &()).await.unwrap_err();
    assert!(timer.to_string().contains("a timer has none"), "{timer}");
}

async fn a_recorded_value_is_replaced_where_it_is(engine: TestEngine) {
    #[workflow]
    async fn records(ctx: Context) -> Result<String, Error> {
        let one = ctx.step(work, "one".to_owned()).await?;
        let value = ctx.record("value", || 1)?;
        let two = ctx.step(work, format!("{one} {value}")).await?;
        Ok(two)
    }
    let _worker = engine.worker((records, work)).await;
    let run = engine.client.start(records, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "one 1");
    let fork = fork(run.fork().with_output(OpNumber(1), &5)).await;
    assert_eq!(fork.output().await.unwrap(), "one 5");
    assert_eq!(engine.steps.count("began one"), 1);
}

async fn an_open_queued_step_is_a_new_run_unless_it_gets_an_output(engine: TestEngine) {
    #[workflow]
    async fn queues(ctx: Context) -> Result<String, Error> {
        ctx.step(work, "slow queued".to_owned()).queue("gpu").await
    }
    let _worker = engine.builder().queues(["default", "gpu"]).register((queues, work)).start().await.unwrap();
    let run = engine.client.start(queues, ()).await.unwrap();
    engine.steps.wait_for_log("began slow queued", 1).await;
    let open = fork(run.fork().at(2)).await;
    engine.steps.wait_for_log("began slow queued", 2).await;
    let given = fork(run.fork().with_output(OpNumber(0), "given")).await;
    assert_eq!(given.output().await.unwrap(), "given");
    let of = async |run| engine.client.steps(run).await.unwrap()[0].child.unwrap();
    let (first, second) = (of(run.id()).await, of(open.id()).await);
    assert_ne!(first, second);
    // The end of the fork stops its own run, and not the other one's.
    engine.client.terminate(open.id(), "not needed").await.unwrap();
    engine.wait_for_status(second, Status::Cancelled).await;
    assert_eq!(engine.status(first).await, Status::Running);
    engine.steps.open("slow queued");
    assert_eq!(run.output().await.unwrap(), "slow queued");
    assert_eq!(engine.steps.count("began slow queued"), 2);
}

async fn a_child_that_has_begun_refuses_the_fork(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        ctx.note("before").await?;
        ctx.child(named, "slow child".to_owned()).await
    }
    let worker = engine.worker(parent).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("child_started")).await;
    let at = event(&engine, run.id(), "child_started", 0).await;
    // No worker has the child's code yet: it has not begun.
    let fork = fork(run.fork().at(at + 1)).await;
    engine.wait_for_history(fork.id(), |history| history.contains("run_forked")).await;
    worker.stop().await.unwrap();
    let _worker = engine.worker((parent, named, work)).await;
    engine.steps.wait_for_log("began slow child", 2).await;
    let reason = refusal(&engine, run.id(), at + 1).await;
    assert!(reason.contains(&format!("has begun; fork at event {at} or an earlier one")), "{reason}");
    engine.steps.open("slow child");
    assert_eq!(fork.output().await.unwrap(), "slow child");
    run.output().await.unwrap();
    assert_eq!(engine.steps.count("before"), 1);
}

async fn open_waits_have_their_full_time_again(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<String, Error> {
        let hook = ctx.hook::<u32>("go").timeout("2h");
        ctx.sleep("1h").await?;
        Ok(format!("{:?}", hook.await.map_err(|error| error.kind())))
    }
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    let at = engine.client.events(run.id()).await.unwrap().len() as u64;
    engine.run_to("3h").await;
    run.output().await.unwrap();
    let fork = fork(run.fork().at(at)).await;
    engine.settle().await;
    engine.advance("59m").await;
    assert_eq!(event(&engine, fork.id(), "run_forked", 0).await, at);
    assert!(!engine.history(fork.id()).await.contains("timer_fired"));
    engine.advance("2m").await;
    engine.wait_for_history(fork.id(), |history| history.contains("timer_fired")).await;
    engine.advance("58m").await;
    assert_eq!(engine.status(fork.id()).await, Status::Waiting);
    engine.advance("2m").await;
    assert_eq!(fork.output().await.unwrap(), "Err(Timeout)");
}

#[workflow(name = "trip")]
async fn trip(ctx: Context) -> Result<String, Error> {
    let one = ctx.step(work, "one".to_owned()).await?;
    let go = ctx.hook::<u32>("go").await?;
    Ok(format!("{one} {go}"))
}

#[workflow(name = "trip")]
async fn longer_trip(ctx: Context) -> Result<String, Error> {
    let one = ctx.step(work, "one".to_owned()).await?;
    let two = ctx.step(work, "two".to_owned()).await?;
    let go = ctx.hook::<u32>("go").await?;
    Ok(format!("{one} {two} {go}"))
}

async fn a_stuck_run_is_rescued_before_its_divergence(engine: TestEngine) {
    let worker = engine.worker((trip, work)).await;
    let run = engine.client.start(trip, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("next", (longer_trip, work)).await;
    engine.send(run.id(), "go", 1).await;
    engine.wait_for_status(run.id(), Status::Stuck).await;
    let at = event(&engine, run.id(), "hook_opened", 0).await;
    let fork = fork(run.fork().at(at)).await;
    engine.wait_for_status(fork.id(), Status::Waiting).await;
    engine.send(fork.id(), "go", 2).await;
    assert_eq!(fork.output().await.unwrap(), "one two 2");
    assert_eq!((engine.steps.count("began one"), engine.steps.count("began two")), (1, 1));
    assert_eq!(engine.status(run.id()).await, Status::Stuck);
}

async fn a_fork_of_a_fork_keeps_the_seed(engine: TestEngine) {
    let _worker = engine.worker(lottery).await;
    let run = engine.client.start(lottery, ()).await.unwrap();
    engine.run_to("2h").await;
    let first = fork(run.fork().at(1)).await;
    engine.settle().await;
    engine.advance("2h").await;
    engine.wait_for_history(first.id(), |history| history.contains("hook_opened")).await;
    let at = event(&engine, first.id(), "hook_opened", 0).await + 1;
    let second = fork(first.fork().at(at)).await;
    let mut outputs = Vec::new();
    for run in [&run, &first, &second] {
        engine.send(run.id(), "draw", 1).await;
        outputs.push(run.output().await.unwrap());
    }
    assert_eq!((outputs[0].0, outputs[0].3), (outputs[1].0, outputs[1].3));
    assert_eq!(outputs[1], outputs[2]);
    let history = engine.history(second.id()).await;
    assert_eq!(history.matches("run_forked").count(), 2, "{history}");
    // The other runs are not needed any more.
    engine.client.delete(run.id()).await.unwrap();
    engine.client.delete(first.id()).await.unwrap();
    let third = fork(second.fork().at(at)).await;
    engine.send(third.id(), "draw", 1).await;
    assert_eq!(third.output().await.unwrap(), outputs[1]);
}

async fn a_worker_that_is_lost_before_the_fork_is_recorded_changes_nothing(engine: TestEngine) {
    let worker = engine.worker((all_of_them, work)).await;
    let names = ["a", "slow b"].map(str::to_owned).to_vec();
    let run = engine.client.start(all_of_them, names).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_completed")).await;
    engine.crash(worker);
    let at = event(&engine, run.id(), "step_completed", 0).await + 1;
    let fork = fork(run.fork().at(at)).await;
    assert_eq!(engine.status(fork.id()).await, Status::Pending);
    let worker = engine.worker((all_of_them, work)).await;
    engine.wait_for_history(fork.id(), |history| history.contains("run_forked")).await;
    engine.crash(worker);
    let _worker = engine.worker((all_of_them, work)).await;
    engine.steps.open("slow b");
    assert_eq!(fork.output().await.unwrap(), "a+slow b");
    let history = engine.history(fork.id()).await;
    assert_eq!(history.matches("run_forked").count(), 1, "{history}");
    assert_eq!(engine.steps.count("began a"), 1);
}

async fn a_fork_is_idempotent_and_shows_where_it_comes_from(engine: TestEngine) {
    let _worker = engine.worker((two_steps, work)).await;
    let start = engine.client.start(two_steps, ()).key("k").tag("team", "red").header("user", "ada");
    let run = start.deadline("1d").priority(2).await.unwrap();
    run.output().await.unwrap();
    let client = engine.client.acting_as("eve");
    let call = || client.fork::<String>(run.id()).at(3).id(RunId::from_bits(77));
    let first = fork(call()).await;
    first.output().await.unwrap();
    assert_eq!(fork(call()).await.id(), first.id());
    assert_eq!(engine.client.counts().await.unwrap()[&Status::Completed], 2);
    let view = engine.view(first.id()).await;
    assert_eq!((view.forked_from(), view.key.as_deref(), view.deadline), (Some(run.id()), None, None));
    assert_eq!((view.priority, view.tags["team"].as_str(), view.parent), (2, "red", None));
    let forks = engine.client.list().tag("outlast:forked_from", run.id().to_string()).await.unwrap();
    assert_eq!(forks.runs.iter().map(|run| run.id).collect::<Vec<_>>(), [first.id()]);
    let turns = engine.turns(first.id()).await;
    let Event::RunStarted(started) = &turns[0].events[0] else { panic!("{turns:?}") };
    let origin = started.forked.as_deref().unwrap();
    assert_eq!((origin.at, origin.seed, origin.actor.as_deref()), (3, run.id(), Some("eve")));
    let other = call().id(run.id()).await.unwrap_err();
    assert!(other.to_string().contains("is not a fork of run"), "{other}");
}

async fn an_id_of_another_fork_is_refused(engine: TestEngine) {
    let _worker = engine.worker((two_steps, work)).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    run.output().await.unwrap();
    let (id, given) = (ids(1), ids(2));
    run.fork().at(3).id(id).await.unwrap();
    run.fork().with_output(OpNumber(0), "won").id(given).await.unwrap();
    assert_eq!(run.fork().at(3).id(id).await.unwrap().id(), id);
    assert_eq!(run.fork().with_output(OpNumber(0), "won").id(given).await.unwrap().id(), given);
    let others = [
        (run.fork().at(1).id(id), format!("a fork of run {} at event 3", run.id())),
        (run.fork().with_output(OpNumber(0), "won").id(id), "at event 3; use another id".into()),
        (run.fork().with_output(OpNumber(0), "lost").id(given), "at event 2, with other outputs".into()),
        (run.fork().with_output(OpNumber(1), "won").id(given), "at event 2, with other outputs".into()),
        (run.fork().at(2).id(given), "at event 2, with other outputs".into()),
    ];
    for (call, expected) in others {
        let refused = call.await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.to_string().contains(&expected), "{refused}");
    }
    // The answer to a repeated call does not need the other run.
    engine.client.delete(run.id()).await.unwrap();
    assert_eq!(run.fork().at(3).id(id).await.unwrap().id(), id);
}

async fn two_callers_with_one_id_get_one_fork_or_a_refusal(engine: TestEngine) {
    let _worker = engine.worker((two_steps, work)).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    run.output().await.unwrap();
    for nth in 1..20 {
        let id = ids(nth);
        let (one, other) = futures_util::join!(
            run.fork().at(3).id(id).into_future(),
            run.fork().at(1 + nth as u64 % 2).id(id).into_future()
        );
        let refusals: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
        let [refused] = &refusals[..] else { panic!("{refusals:?}") };
        assert!(
            refused.to_string().contains(&format!("is a fork of run {} at event", run.id())),
            "{refused}"
        );
    }
}

fn ids(nth: u128) -> RunId {
    RunId::from_bits(nth << 64 | 0x0f0f)
}

async fn runs_that_cannot_be_forked_say_why(engine: TestEngine) {
    #[workflow]
    async fn waits_for_token(ctx: Context) -> Result<(), Error> {
        let hook = ctx.open_hook::<u32>("paid").token("order-7").await?;
        hook.next().await?;
        Ok(())
    }
    let _worker = engine.worker((two_steps, waits_for_token, work)).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    run.output().await.unwrap();
    let end = event(&engine, run.id(), "run_completed", 0).await;
    let reason = refusal(&engine, run.id(), end + 1).await;
    assert!(reason.contains(&format!("it had ended with event {end}; fork at event {end}")), "{reason}");
    let reason = refusal(&engine, run.id(), end + 2).await;
    assert!(reason.contains(&format!("it has no event {}: its history has {} events", end + 2, end + 1)));
    let missing = engine.client.fork::<()>(RunId::from_bits(1)).at(1).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let neither = engine.client.fork::<()>(run.id()).await.unwrap_err();
    assert_eq!(neither.kind(), ErrorKind::Invalid);
    let no_operation = run.fork().with_output(OpNumber(9), &1).await.unwrap_err();
    assert!(no_operation.to_string().contains("it has no operation 9"), "{no_operation}");

    let run = engine.client.start(waits_for_token, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    let at = event(&engine, run.id(), "token_requested", 0).await;
    let events = engine.client.events(run.id()).await.unwrap().len() as u64;
    let reason = refusal(&engine, run.id(), events).await;
    assert!(reason.contains("it holds a token of hook `paid`"), "{reason}");
    assert!(reason.ends_with(&format!("fork at event {at} or an earlier one")), "{reason}");
    let fork = fork(run.fork().at(at)).await;
    let error = fork.output().await.unwrap_err();
    assert!(error.to_string().contains(&run.id().to_string()), "{error}");
}

async fn a_step_that_is_attempted_at_most_once_needs_force(engine: TestEngine) {
    #[step(at_most_once)]
    async fn pay(cx: StepContext<StepState>) -> Result<u32, StepError> {
        cx.state().log("paid");
        Ok(1)
    }
    #[workflow]
    async fn pays(ctx: Context) -> Result<u32, Error> {
        ctx.step(pay, ()).await
    }
    let _worker = engine.worker((pays, pay)).await;
    let run = engine.client.start(pays, ()).await.unwrap();
    run.output().await.unwrap();
    let reason = refusal(&engine, run.id(), 2).await;
    assert!(reason.contains("step `pay` (operation 0) is attempted at most once"), "{reason}");
    let fork = fork(run.fork().at(2).force()).await;
    assert_eq!(fork.output().await.unwrap(), 1);
    assert_eq!(engine.steps.count("paid"), 2);
    let given = run.fork().with_output(OpNumber(0), &5).await.unwrap();
    assert_eq!(given.output().await.unwrap(), 5);
    assert_eq!(engine.steps.count("paid"), 2);
}
