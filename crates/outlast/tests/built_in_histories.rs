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

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v3/schedule.json")
}

#[test]
fn the_history_of_a_schedule_replays_up_to_each_of_its_turns() {
    let text = std::fs::read_to_string(file()).unwrap();
    let history = History::from_json(&text).unwrap();
    assert_eq!(history.to_json(), text, "it is written as it was read");
    check(&history);
}

#[tokio::test(flavor = "current_thread")]
async fn a_schedule_of_this_build_has_a_history_that_replays() {
    let text = history_of_a_schedule().await;
    check(&History::from_json(&text).unwrap());
    if std::env::var_os("OUTLAST_BLESS").is_some() && !file().exists() {
        std::fs::write(file(), text).unwrap();
    }
}

/// Replays the history up to each of its turns, and asserts that it has everything that a schedule does.
fn check(history: &History) {
    for turns in 1..=history.turns.len() {
        let History { run, turns: all } = history;
        let begin = History { run: *run, turns: all[..turns].to_vec() };
        if let Err(error) = outlast::replay(work, begin) {
            panic!("after {turns} turns: {error}");
        }
    }
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    let kinds: BTreeSet<_> = events.clone().map(Event::kind).collect();
    for kind in [
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
    ] {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
    assert!(events.filter(|event| matches!(event, Event::RunContinued(_))).count() > 10);
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
