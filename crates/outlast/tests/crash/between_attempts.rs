//! A process is killed between two attempts of a step, while another step is running.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{Timestamp, World};
use outlast_conformance::KillerWorld;
use throwaway::wait_until;
use tokio::sync::Notify;

use crate::child::{ChildArgs, ChildExit, ChildProcess, Program};
use crate::mixed_program::sleep;
use crate::process_folder::{Ack, Effect, Outputs, ProcessFolder};
use crate::snapshot::{RunSnapshot, WorldSnapshot};

const KEY: &str = "pauser";

#[test]
fn a_step_between_two_attempts_waits_for_the_rest_of_its_pause_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let process_folder = ProcessFolder::new(folder.path());
    let start_child = || {
        ChildProcess::start(ChildArgs {
            program: Program::Pauser,
            process_folder: process_folder.clone(),
            point: None,
        })
    };
    let first = start_child();
    wait_until("the pause", || process_folder.acks().contains(&Ack::Waits(KEY.into())).then_some(()));
    first.kill();
    assert_eq!(start_child().end(), ChildExit::Done);

    let end = WorldSnapshot::take(&process_folder);
    end.check_end([KEY.into()]);
    let (retry_at, effects) = (retry_at(&end.runs[KEY]), process_folder.effects());
    let second_attempts: Vec<&Effect> =
        effects.iter().filter(|effect| effect.step == "fail_once" && effect.attempt == 2).collect();
    assert_eq!(second_attempts.len(), 1, "the second attempt was made once: {effects:?}");
    assert!(
        second_attempts[0].at >= retry_at,
        "attempted at {}, but due at {retry_at}",
        second_attempts[0].at
    );
}

fn retry_at(run: &RunSnapshot) -> Timestamp {
    let mut pauses = run.events().filter_map(|event| match event {
        Event::StepRetried { retry_at, .. } => Some(*retry_at),
        _ => None,
    });
    pauses.next().unwrap()
}

/// Starts the run, logs when its step waits for a retry, and waits for its end.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = StepState { process_folder: process_folder.clone(), was_attempted_again: Notify::new() };
    let worker = Worker::builder(world.clone())
        .state(state)
        .register((pauser, fail_once, last_longer))
        .start()
        .await?;
    let client = Client::new(world);
    let run = client.start(pauser, ()).key(KEY).await?;
    let is_pause = |event: &Event| matches!(event, Event::StepRetried { .. });
    while !client.history(run.id()).await?.iter().flat_map(|turn| &turn.events).any(is_pause) {
        sleep("2ms").await;
    }
    process_folder.log_ack(&Ack::Waits(KEY.into()));
    run.output().await?;
    worker.stop().await?;
    Ok(Outputs::new())
}

#[derive(Debug)]
struct StepState {
    process_folder: ProcessFolder,
    was_attempted_again: Notify,
}

#[workflow]
async fn pauser(ctx: Context) -> Result<(), Error> {
    try_join!(ctx.step(fail_once, ()), ctx.step(last_longer, ()))?;
    Ok(())
}

#[step]
async fn fail_once(cx: StepContext<StepState>) -> Result<(), StepError> {
    cx.state().process_folder.log_effect(&cx, KEY, "fail_once");
    if cx.attempt() == 1 {
        return Err(StepError::retry_after("not yet", "1500ms"));
    }
    cx.state().was_attempted_again.notify_one();
    Ok(())
}

/// Keeps the run active until the other step is attempted again.
#[step]
async fn last_longer(cx: StepContext<StepState>) {
    cx.state().process_folder.log_effect(&cx, KEY, "last_longer");
    cx.state().was_attempted_again.notified().await;
}
