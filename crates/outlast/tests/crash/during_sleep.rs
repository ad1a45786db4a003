//! A process is killed while its run sleeps.

use std::sync::Arc;
use std::time::Duration;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{Status, Timestamp, World};
use outlast_conformance::KillerWorld;
use throwaway::wait_until;

use crate::child::{ChildArgs, ChildExit, ChildProcess, Program};
use crate::mixed_program::sleep;
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::{RunSnapshot, WorldSnapshot, attempt_counts};

const KEY: &str = "sleeper";

/// How late a timer may be on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(8);

#[test]
fn a_run_killed_in_its_sleep_sleeps_only_for_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let process_folder = ProcessFolder::new(folder.path());
    let start_child = || {
        ChildProcess::start(ChildArgs {
            program: Program::Sleeper,
            process_folder: process_folder.clone(),
            point: None,
        })
    };
    let first = start_child();
    wait_until("the run to sleep", || process_folder.acks().contains(&Ack::Waits(KEY.into())).then_some(()));
    first.kill();
    let crash = WorldSnapshot::take(&process_folder.copy_database("at-kill"));
    assert_eq!(crash.runs[KEY].view.status, Status::Waiting);
    let fire_at = fire_at(&crash.runs[KEY]);
    assert_eq!(start_child().end(), ChildExit::Done);

    let end = WorldSnapshot::take(&process_folder);
    end.check_end([KEY.into()]);
    let run = &end.runs[KEY];
    assert_eq!(self::fire_at(run), fire_at, "the timer was not started again");
    let fired = run.history.iter().find(|turn| turn.events.iter().any(is_fired)).unwrap();
    assert!(fired.at >= fire_at, "the timer fired early: at {}, not at {fire_at}", fired.at);
    let late = fired.at.since(fire_at);
    assert!(late < LATE_MAX, "the timer fired {late:?} late");
    assert!(fired.at >= process_folder.child_starts()[1], "the second process fired it");
    assert!(
        attempt_counts(&process_folder.effects()).values().all(|count| *count == 1),
        "no step was made again"
    );
}

fn fire_at(run: &RunSnapshot) -> Timestamp {
    let mut timers = run.events().filter_map(|event| match event {
        Event::TimerStarted { fire_at, .. } => Some(*fire_at),
        _ => None,
    });
    let (timer, another) = (timers.next(), timers.next());
    assert_eq!(another, None, "there is one timer");
    timer.unwrap()
}

fn is_fired(event: &Event) -> bool {
    matches!(event, Event::TimerFired { .. })
}

/// Starts the run, logs when it sleeps, and waits for its end.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((sleeper, before, after))
        .start()
        .await?;
    let run = Client::new(world).start(sleeper, ()).key(KEY).await?;
    while !matches!(run.view().await?.status, Status::Waiting | Status::Completed) {
        sleep("2ms").await;
    }
    process_folder.log_ack(&Ack::Waits(KEY.into()));
    run.output().await?;
    worker.stop().await?;
    Ok(Outputs::new())
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<(), Error> {
    ctx.step(before, ()).await?;
    ctx.sleep("1500ms").await?;
    ctx.step(after, ()).await?;
    Ok(())
}

#[step]
async fn before(cx: StepContext<ProcessFolder>) {
    cx.state().log_effect(&cx, KEY, "before");
}

#[step]
async fn after(cx: StepContext<ProcessFolder>) {
    cx.state().log_effect(&cx, KEY, "after");
}
