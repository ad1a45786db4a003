//! Histories of built-in workflows: every build replays those of earlier ones.
//!
//! `golden/v3/schedule.json` is the history of a schedule that does everything a schedule can do. It does not change:
//! when the workflow changes, `ctx.patched` or a new version keeps it replaying, and another file is added.
//! With `OUTLAST_BLESS=1` the second test writes the file, if it does not exist.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::core::{Event, History};
use outlast::prelude::*;
use outlast::{CatchUp, Firing, Overlap};
use outlast_testkit::TestWorld;

#[step]
async fn input(firing: Firing) -> Result<u64, StepError> {
    let second = firing.scheduled_at.as_micros() as u64 / 1_000_000 % 60;
    if second == 30 { Err(StepError::fatal("no input")) } else { Ok(second) }
}

/// Takes a minute at second 40, and fails at second 50.
#[workflow]
async fn work(ctx: Context, second: u64) -> Result<(), Error> {
    match second {
        40 => ctx.sleep("1m").await,
        50 => Err(Error::msg("out of paper")),
        _ => Ok(()),
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v3").join(name)
}

/// The history in a file.
fn golden(name: &str) -> History {
    let text = std::fs::read_to_string(file(name)).unwrap();
    let history = History::from_json(&text).unwrap();
    assert_eq!(history.to_json(), text, "it is written as it was read");
    history
}

/// Writes the history of a file that does not exist, if it is wanted.
fn bless(name: &str, text: String) {
    if std::env::var_os("OUTLAST_BLESS").is_some() && !file(name).exists() {
        std::fs::write(file(name), text).unwrap();
    }
}

#[test]
fn the_history_of_a_schedule_replays_up_to_each_of_its_turns() {
    check_schedule(&golden("schedule.json"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_schedule_of_this_build_has_a_history_that_replays() {
    let text = history_of_a_schedule().await;
    check_schedule(&History::from_json(&text).unwrap());
    bless("schedule.json", text);
}

#[test]
fn the_history_of_a_bulk_action_replays_up_to_each_of_its_turns() {
    check_bulk(&golden("bulk.json"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_bulk_action_of_this_build_has_a_history_that_replays() {
    let text = history_of_a_bulk_action().await;
    check_bulk(&History::from_json(&text).unwrap());
    bless("bulk.json", text);
}

/// Replays the history up to each of its turns, and asserts that it has events of these kinds.
fn check(history: &History, expected: &[&str]) {
    for turns in 1..=history.turns.len() {
        let History { run, turns: all } = history;
        let begin = History { run: *run, turns: all[..turns].to_vec() };
        if let Err(error) = outlast::replay(work, begin) {
            panic!("after {turns} turns: {error}");
        }
    }
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    let kinds: BTreeSet<_> = events.map(Event::kind).collect();
    for kind in expected {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
}

fn check_bulk(history: &History) {
    let kinds = [
        "run_continued",
        "step_started",
        "step_completed",
        "timer_started",
        "hook_received",
        "run_completed",
    ];
    check(history, &kinds);
}

fn check_schedule(history: &History) {
    let kinds = [
        "run_continued",
        "value_recorded",
        "timer_started",
        "timer_fired",
        "hook_received",
        "child_started",
        "child_completed",
        "child_failed",
        "child_cancelled",
        "operation_cancelled",
        "step_started",
        "step_completed",
        "step_failed",
        "run_completed",
    ];
    check(history, &kinds);
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    assert!(events.filter(|event| matches!(event, Event::RunContinued(_))).count() > 10);
}

/// The exported history of a bulk action that continues as a new generation, and is stopped.
async fn history_of_a_bulk_action() -> String {
    let world = TestWorld::builder().register((work, input)).start().await;
    let built_ins =
        Worker::builder(world.world()).only_built_ins().keep_generations(1_000).start().await.unwrap();
    let client = world.client();
    for _ in 0..70 {
        client.start(work, 40).await.unwrap();
    }
    let bulk = client.bulk(client.list().workflow(work)).rate(1).durably().pause("audit").await.unwrap();
    // The runs are still asleep.
    world.advance("55s").await;
    bulk.stop("enough").await.unwrap();
    bulk.completed().await.unwrap();
    built_ins.stop().await.unwrap();
    client.export(bulk.run()).await.unwrap()
}

/// The exported history of a schedule that does everything a schedule can do.
async fn history_of_a_schedule() -> String {
    let world = TestWorld::builder().register((work, input)).start().await;
    let client = world.client();
    let schedule =
        client.schedule("golden").every("10s").jitter("1s").catch_up(CatchUp::All(5)).pause_after(3);
    let schedule = schedule.end_at(world.now().plus(Duration::from_secs(300))).tag("team", "sales");
    let schedule = schedule.input_from(input).start(work).await.unwrap();
    let run = schedule.run().await.unwrap();
    world.advance("65s").await;
    schedule.update().overlap(Overlap::Queue).save().await.unwrap();
    world.advance("60s").await;
    schedule.pause("holidays").await.unwrap();
    schedule.trigger().await.unwrap();
    world.advance("30s").await;
    schedule.resume().await.unwrap();
    schedule.update().overlap(Overlap::CancelPrevious).start(work, 40).await.unwrap();
    world.advance("30s").await;
    let now = world.now();
    schedule.backfill(now.minus(Duration::from_secs(60))..now).await.unwrap();
    schedule.update().overlap(Overlap::Allow).start(work, 1).await.unwrap();
    world.advance("10m").await;
    client.export(run).await.unwrap()
}
