//! Schedules: which instants fire, once each, whatever happens meanwhile.

use std::sync::Arc;

use outlast::core::limits::TAGS_MAX;
use outlast::core::world::Answers;
use outlast::core::{Committed, SessionId, Turn, WorldWrapper};
use outlast::prelude::*;
use outlast::{CatchUp, ErrorKind, Firing, Overlap, ScheduleHandle, ScheduleView, Status, Timestamp, World};
use outlast_testkit::TestClock;

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

mod control;
mod downtime;

on_every_world! {
    a_schedule_fires_at_its_intervals,
    cron_times_are_local_times,
    the_same_definition_changes_nothing_and_another_one_replaces_it,
    a_schedule_begins_and_ends_when_it_should,
    an_instant_is_skipped_while_a_firing_runs,
    one_instant_waits_for_the_end_of_a_firing,
    firings_may_overlap,
    an_instant_cancels_the_firing_before_it,
    a_firing_has_its_own_tags_headers_and_deadline,
    the_input_of_a_firing_is_computed_by_a_step,
    a_firing_that_cannot_be_started_is_counted,
    a_firing_that_the_world_refuses_is_counted,
    jitter_is_the_same_for_every_reader_and_shorter_than_the_interval,
    the_history_of_a_schedule_stays_short,
    lists_leave_schedules_out_unless_asked,
}

/// Notes its instant, in seconds after the begin of the test.
#[workflow]
async fn tick(ctx: Context, prefix: String) -> Result<(), Error> {
    ctx.note(&format!("{prefix} {}", seconds(ctx.scheduled_at().unwrap()))).await?;
    Ok(())
}

/// Notes when it begins and ends; ends when it is told to.
#[workflow]
async fn hold(ctx: Context) -> Result<(), Error> {
    let instant = seconds(ctx.scheduled_at().unwrap());
    ctx.note(&format!("begin {instant}")).await?;
    let told = ctx.hook::<u32>("go").await;
    let how = if told.is_ok() { "end" } else { "stopped" };
    ctx.shielded().note(&format!("{how} {instant}")).await?;
    told.map(drop)
}

fn seconds(instant: Timestamp) -> u64 {
    instant.since(TestClock::BEGIN).as_secs()
}

async fn view(engine: &TestEngine, name: &str) -> ScheduleView {
    engine.client.schedule_handle(name).view().await.unwrap()
}

/// Ends the firing of an instant that is running.
async fn end_firing(engine: &TestEngine, name: &str, instant: u64) {
    let view = view(engine, name).await;
    let firing = view.running.iter().find(|firing| seconds(firing.scheduled_at) == instant);
    engine.send(firing.unwrap_or_else(|| panic!("{instant} is not running: {view:?}")).run, "go", 1).await;
    engine.settle().await;
}

async fn a_schedule_fires_at_its_intervals(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    engine.client.schedule("ticks").every("10s").start(tick, "t").await.unwrap();
    engine.run_to("35s").await;
    assert_eq!(engine.steps.logged(), ["t 10", "t 20", "t 30"]);
    let view = view(&engine, "ticks").await;
    assert_eq!((view.counts.fired, view.counts.completed), (3, 3));
    assert_eq!(view.next, Some(engine.time_after_begin("40s")));
    let run = engine.view(view.run).await;
    assert_eq!((run.status, run.generation), (Status::Waiting, 4));
    let next = engine.client.schedule_handle("ticks").next(3).await.unwrap();
    assert_eq!(next.into_iter().map(seconds).collect::<Vec<_>>(), [40, 50, 60]);
}

async fn cron_times_are_local_times(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    // The test begins on 2030-01-01, a Tuesday, at midnight in UTC.
    let berlin = engine.client.schedule("b").cron("30 1 * * TUE,WED").timezone("Europe/Berlin");
    berlin.start(tick, "berlin").await.unwrap();
    let utc = engine.client.schedule("u").cron("@daily");
    let next = utc.start(tick, "utc").await.unwrap().next(2).await.unwrap();
    assert_eq!(next.into_iter().map(seconds).collect::<Vec<_>>(), [86_400, 172_800]);
    engine.run_to("6d").await;
    let logged = engine.steps.logged();
    let berlin: Vec<_> = logged.iter().filter(|note| note.starts_with("berlin")).collect();
    assert_eq!(berlin, ["berlin 1800", "berlin 88200"]);
    assert_eq!(logged.len(), 2 + 6);
}

async fn the_same_definition_changes_nothing_and_another_one_replaces_it(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    let define = async |every: &'static str, input: &'static str| {
        let handle = engine.client.schedule("s").every(every).start(tick, input).await.unwrap();
        engine.settle().await;
        handle
    };
    let run = define("10s", "a").await.run().await.unwrap();
    engine.run_to("5s").await;
    // Another anchor would move the instants.
    assert_eq!(define("10s", "a").await.run().await.unwrap(), run);
    engine.run_to("12s").await;
    assert_eq!(define("20s", "b").await.run().await.unwrap(), run);
    engine.run_to("35s").await;
    let handle = engine.client.schedule_handle("s");
    handle.update().every("2s").save().await.unwrap();
    engine.settle().await;
    engine.run_to("38s").await;
    assert_eq!(engine.steps.logged(), ["a 10", "b 32", "b 37"]);
    handle.update().start(tick, "c").await.unwrap();
    engine.settle().await;
    engine.run_to("40s").await;
    assert_eq!(engine.steps.logged(), ["a 10", "b 32", "b 37", "c 39"]);
}

async fn a_schedule_begins_and_ends_when_it_should(engine: TestEngine) {
    let _worker = engine.worker(tick).await;
    let bounded = engine.client.schedule("s").every("10s").start_at(engine.time_after_begin("25s"));
    let handle = bounded.end_at(engine.time_after_begin("45s")).start(tick, "t").await.unwrap();
    let next = handle.next(5).await.unwrap();
    assert_eq!(next.into_iter().map(seconds).collect::<Vec<_>>(), [25, 35]);
    let run = handle.run().await.unwrap();
    engine.run_to("2m").await;
    assert_eq!(engine.steps.logged(), ["t 25", "t 35"]);
    assert_eq!(engine.status(run).await, Status::Completed);
    assert_eq!(handle.view().await.unwrap_err().kind(), ErrorKind::NotFound);
    // The name is free.
    let again = engine.client.schedule("s").every("10s").start(tick, "u").await.unwrap();
    assert_ne!(again.run().await.unwrap(), run);
    engine.run_to("2m15s").await;
    assert_eq!(engine.steps.logged(), ["t 25", "t 35", "u 130"]);
}

async fn holds(engine: &TestEngine, overlap: Overlap) -> ScheduleHandle {
    engine.client.schedule("s").every("10s").overlap(overlap).start(hold, ()).await.unwrap()
}

async fn an_instant_is_skipped_while_a_firing_runs(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    holds(&engine, Overlap::Skip).await;
    engine.run_to("35s").await;
    end_firing(&engine, "s", 10).await;
    engine.run_to("45s").await;
    assert_eq!(engine.steps.logged(), ["begin 10", "end 10", "begin 40"]);
    let counts = view(&engine, "s").await.counts;
    assert_eq!((counts.fired, counts.skipped, counts.completed), (2, 2, 1));
}

async fn one_instant_waits_for_the_end_of_a_firing(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    holds(&engine, Overlap::Queue).await;
    engine.run_to("35s").await;
    assert_eq!(view(&engine, "s").await.waiting.map(seconds), Some(20));
    end_firing(&engine, "s", 10).await;
    assert_eq!(engine.steps.logged(), ["begin 10", "end 10", "begin 20"]);
    engine.run_to("45s").await;
    end_firing(&engine, "s", 20).await;
    assert_eq!(engine.steps.logged()[3..], ["end 20", "begin 40"]);
    assert_eq!(view(&engine, "s").await.counts.skipped, 1);
}

async fn firings_may_overlap(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    holds(&engine, Overlap::Allow).await;
    engine.run_to("35s").await;
    let running = view(&engine, "s").await.running;
    assert_eq!(running.iter().map(|firing| seconds(firing.scheduled_at)).collect::<Vec<_>>(), [10, 20, 30]);
    for instant in [20, 10, 30] {
        end_firing(&engine, "s", instant).await;
    }
    assert_eq!(engine.steps.logged()[3..], ["end 20", "end 10", "end 30"]);
    let view = view(&engine, "s").await;
    assert_eq!((view.counts.completed, view.running.len()), (3, 0));
}

async fn an_instant_cancels_the_firing_before_it(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    holds(&engine, Overlap::CancelPrevious).await;
    engine.run_to("35s").await;
    let expected = ["begin 10", "stopped 10", "begin 20", "stopped 20", "begin 30"];
    assert_eq!(engine.steps.logged(), expected);
    let counts = view(&engine, "s").await.counts;
    assert_eq!((counts.fired, counts.cancelled, counts.skipped), (3, 2, 0));
}

async fn a_firing_has_its_own_tags_headers_and_deadline(engine: TestEngine) {
    #[workflow]
    async fn shows(ctx: Context) -> Result<(), Error> {
        let user = ctx.headers().get("user").cloned().unwrap_or_default();
        let deadline = seconds(ctx.deadline().unwrap());
        ctx.note(&format!("{user} until {deadline}")).await?;
        ctx.hook::<u32>("never").await.map(drop)
    }
    let _worker = engine.worker(shows).await;
    let schedule = engine.client.schedule("s").every("10s").tag("team", "sales").header("user", "ada");
    schedule.deadline("5s").priority(3).start(shows, ()).await.unwrap();
    engine.run_to("12s").await;
    assert_eq!(engine.steps.logged(), ["ada until 15"]);
    let page = engine.client.list().tag("outlast:schedule", "s").await.unwrap();
    let [firing] = &*page.runs else { panic!("{page:?}") };
    assert_eq!(firing.tags.get("team").map(String::as_str), Some("sales"));
    let key = format!("outlast:firing:{}:{}", view(&engine, "s").await.run, firing.created_at.as_micros());
    assert_eq!((firing.key.as_deref(), firing.priority), (Some(&*key), 3));
    engine.run_to("16s").await;
    assert_eq!(engine.status(firing.id).await, Status::Cancelled);
    assert_eq!(view(&engine, "s").await.counts.cancelled, 1);
}

#[step]
async fn orders(cx: StepContext<StepState>, firing: Firing) -> Result<String, StepError> {
    let instant = seconds(firing.scheduled_at);
    cx.state().log(format!("input of {} {instant}", firing.schedule));
    match instant {
        20 => Err(StepError::fatal("no orders")),
        _ => Ok(format!("orders of {instant},")),
    }
}

async fn the_input_of_a_firing_is_computed_by_a_step(engine: TestEngine) {
    let _worker = engine.builder().register((tick, orders)).queues(["night"]).start().await.unwrap();
    let schedule = engine.client.schedule("s").every("10s").queue("night");
    schedule.input_from(orders).start(tick).await.unwrap();
    engine.run_to("15s").await;
    assert_eq!(engine.steps.logged(), ["input of s 10", "orders of 10, 10"]);
}

async fn a_firing_that_cannot_be_started_is_counted(engine: TestEngine) {
    let _worker = engine.worker((tick, orders)).await;
    let schedule = engine.client.schedule("s").every("10s");
    let handle = schedule.input_from(orders).start(tick).await.unwrap();
    engine.run_to("35s").await;
    let logged = engine.steps.logged();
    assert_eq!(logged[2..], ["input of s 20", "input of s 30", "orders of 30, 30"]);
    let view = handle.view().await.unwrap();
    assert_eq!((view.counts.fired, view.counts.refused), (2, 1));
    let refusal = view.refusal.unwrap();
    assert_eq!((seconds(refusal.scheduled_at), seconds(refusal.at)), (20, 20));
    let sentence = handle.explain().await.unwrap().sentence;
    assert!(
        sentence.contains("Of its starts 1 were refused") && sentence.contains("no orders"),
        "{sentence}"
    );
}

/// A world in which the firing of second 20 has more tags than a run may have.
#[derive(Debug)]
struct RefusesSecond20(Arc<dyn World>);

impl WorldWrapper for RefusesSecond20 {
    fn inner(&self) -> &dyn World {
        &*self.0
    }

    async fn commit(&self, session: SessionId, turns: &[Turn]) -> Answers<Committed> {
        let mut turns = turns.to_vec();
        let instant = TestClock::BEGIN.plus(std::time::Duration::from_secs(20)).as_micros().to_string();
        for child in
            turns.iter_mut().flat_map(|turn| turn.outbox.iter_mut()).flat_map(|out| &mut out.children)
        {
            if child.start.key.as_ref().is_some_and(|key| key.text.ends_with(&instant)) {
                child.start.tags = (0..=TAGS_MAX).map(|tag| (tag.to_string(), String::new())).collect();
            }
        }
        self.0.commit(session, &turns).await
    }
}

async fn a_firing_that_the_world_refuses_is_counted(engine: TestEngine) {
    let world = Arc::new(RefusesSecond20(engine.world.clone()));
    let worker = Worker::builder(world).state(engine.steps.clone());
    let _worker = worker.register((tick, super::test_engine::note)).start().await.unwrap();
    let schedule = engine.client.schedule("s").every("10s").pause_after(2);
    let handle = schedule.start(tick, "t").await.unwrap();
    engine.run_to("35s").await;
    assert_eq!(engine.steps.logged(), ["t 10", "t 30"], "the schedule goes on");
    let view = handle.view().await.unwrap();
    assert_eq!((view.counts.fired, view.counts.completed, view.counts.refused), (2, 2, 1));
    let refusal = view.refusal.unwrap();
    assert_eq!((seconds(refusal.scheduled_at), seconds(refusal.at)), (20, 20));
    let sentence = handle.explain().await.unwrap().sentence;
    assert!(sentence.contains("Of its starts 1 were refused") && sentence.contains("tags"), "{sentence}");
}

async fn jitter_is_the_same_for_every_reader_and_shorter_than_the_interval(engine: TestEngine) {
    let worker = engine.worker(tick).await;
    engine.client.schedule("s").every("10s").jitter("1h").start(tick, "t").await.unwrap();
    engine.settle().await;
    let first = view(&engine, "s").await;
    engine.crash(worker);
    let _worker = engine.worker(tick).await;
    engine.settle().await;
    assert_eq!(view(&engine, "s").await.next, first.next);
    let mut delays = Vec::new();
    for _ in 0..20 {
        let view = view(&engine, "s").await;
        let (next, instant) = (view.next.unwrap(), view.next_scheduled_at.unwrap());
        assert!(next.since(instant).as_secs() < 10, "{view:?}");
        delays.push(next.since(instant));
        engine.clock.run_until(next).await;
        engine.settle().await;
    }
    assert_eq!(engine.steps.logged().len(), 20);
    delays.dedup();
    assert!(delays.len() > 10, "{delays:?}");
}

async fn the_history_of_a_schedule_stays_short(engine: TestEngine) {
    let _worker = engine.caching_builder().register(tick).start().await.unwrap();
    engine.client.schedule("s").every("1s").start(tick, "t").await.unwrap();
    let loaded = async || {
        let run = view(&engine, "s").await.run;
        let histories = engine.world.histories(&[run]).await.unwrap();
        histories[0].as_ref().unwrap().iter().map(|turn| turn.events.len()).sum::<usize>()
    };
    engine.run_to("5s").await;
    let first = loaded().await;
    engine.run_to("300s").await;
    assert_eq!(view(&engine, "s").await.counts.fired, 300);
    assert!(loaded().await <= first.max(12), "{} against {first}", loaded().await);
}

async fn lists_leave_schedules_out_unless_asked(engine: TestEngine) {
    let _worker = engine.worker(hold).await;
    for name in ["a", "b", "c"] {
        engine.client.schedule(name).every("1h").start(hold, ()).await.unwrap();
    }
    let run = engine.client.start(hold, ()).tag("x", "y").await.unwrap();
    engine.settle().await;
    let listed = engine.client.list().await.unwrap().runs;
    assert_eq!(listed.iter().map(|run| run.id).collect::<Vec<_>>(), [run.id()]);
    assert_eq!(engine.client.list().built_in().await.unwrap().runs.len(), 4);
    let first = engine.client.schedules().limit(2).await.unwrap();
    let second = engine.client.schedules().after(first.next.unwrap()).await.unwrap();
    let names: Vec<_> =
        first.schedules.iter().chain(&second.schedules).map(|view| view.name.clone()).collect();
    assert_eq!((names.len(), second.next), (3, None));
    assert_eq!(names.into_iter().rev().collect::<Vec<_>>(), ["a", "b", "c"]);
}
