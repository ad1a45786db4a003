//! A step whose process dies between two of its attempts, while another step is under way.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{Timestamp, World};
use outlast_conformance::KillerWorld;
use tokio::sync::Notify;

use crate::ledger::{Ack, Effect, Outputs, Place};
use crate::medley::pass;
use crate::picture::{Picture, Pictured};
use crate::process::{Ending, Orders, Process, Program, until};

const KEY: &str = "pauser";

#[test]
fn a_step_between_two_attempts_waits_for_the_rest_of_its_pause_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::new(folder.path());
    let live = || Process::start(Orders { program: Program::Pauser, place: place.clone(), point: None });
    let first = live();
    until("the pause", || place.acks().contains(&Ack::Waits(KEY.into())).then_some(()));
    first.kill();
    assert_eq!(live().end(), Ending::Done);

    let end = Picture::take(&place);
    end.check_end([KEY.into()]);
    let (retry_at, effects) = (retry_at(&end.runs[KEY]), place.effects());
    let seconds: Vec<&Effect> =
        effects.iter().filter(|effect| effect.step == "fail_once" && effect.attempt == 2).collect();
    assert_eq!(seconds.len(), 1, "the second attempt was made once: {effects:?}");
    assert!(seconds[0].at >= retry_at, "attempted at {}, but due at {retry_at}", seconds[0].at);
}

fn retry_at(run: &Pictured) -> Timestamp {
    let mut pauses = run.events().filter_map(|event| match event {
        Event::StepRetried { retry_at, .. } => Some(*retry_at),
        _ => None,
    });
    pauses.next().unwrap()
}

/// Starts the run, says when its step pauses, and waits for its end.
pub(crate) async fn play(place: &Place, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = Outside { place: place.clone(), was_attempted_again: Notify::new() };
    let worker = Worker::builder(world.clone())
        .state(state)
        .register((pauser, fail_once, last_longer))
        .start()
        .await?;
    let client = Client::new(world);
    let run = client.start(pauser, ()).key(KEY).await?;
    let is_pause = |event: &Event| matches!(event, Event::StepRetried { .. });
    while !client.history(run.id()).await?.iter().flat_map(|turn| &turn.events).any(is_pause) {
        pass("2ms").await;
    }
    place.note_ack(&Ack::Waits(KEY.into()));
    run.output().await?;
    worker.stop().await?;
    Ok(Outputs::new())
}

#[derive(Debug)]
struct Outside {
    place: Place,
    was_attempted_again: Notify,
}

#[workflow]
async fn pauser(ctx: Context) -> Result<(), Error> {
    try_join!(ctx.step(fail_once, ()), ctx.step(last_longer, ()))?;
    Ok(())
}

#[step]
async fn fail_once(cx: StepContext<Outside>) -> Result<(), StepError> {
    cx.state().place.note_effect(&cx, KEY, "fail_once");
    if cx.attempt() == 1 {
        return Err(StepError::retry_after("not yet", "1500ms"));
    }
    cx.state().was_attempted_again.notify_one();
    Ok(())
}

/// Keeps the run active until the other step has ended its pause.
#[step]
async fn last_longer(cx: StepContext<Outside>) {
    cx.state().place.note_effect(&cx, KEY, "last_longer");
    cx.state().was_attempted_again.notified().await;
}
