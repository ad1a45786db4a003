//! A program whose runs get into trouble: a cancel and a deadline during a step, with a shielded clean-up after each,
//! a payload that no hook can read, and a build that lacks a step, which another build then continues.

use std::sync::Arc;

use outlast::core::{Event, Judgement};
use outlast::prelude::*;
use outlast::{RunView, Status, World};
use outlast_conformance::KillerWorld;
use tokio::sync::Notify;

use crate::ledger::{Ack, Outputs, Place};
use crate::medley::{Expected, note_output, pass, waits_for};
use crate::picture::Picture;

/// The runs of the program, each under its workflow's name as its key.
pub(crate) const RUNS: [Expected; 4] = [
    Expected { key: "moved", output: "arrived", branches: 1, is_fixed: true },
    Expected { key: "interrupted", output: "released", branches: 1, is_fixed: true },
    // Whether its step is attempted at all depends on how long nobody was there.
    Expected { key: "overdue", output: "released", branches: 1, is_fixed: false },
    Expected { key: "picky", output: "7 told", branches: 1, is_fixed: true },
];

/// What the steps reach.
#[derive(Debug)]
struct Outside {
    place: Place,
    /// A step that waits for a cancel was begun.
    began: Notify,
}

/// Starts all runs and causes their troubles, until all have ended. It may be killed at any instant and run again.
pub(crate) async fn play(place: &Place, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = Arc::new(Outside { place: place.clone(), began: Notify::new() });
    let player = Player { place: place.clone(), client: Client::new(world.clone()), state: state.clone() };
    // The older build has no code for the step. It leaves the run stuck, and the newer one continues it.
    let older = Worker::builder(world.clone()).state(state.clone()).build("older").register(moved);
    let older = older.start().await?;
    let moved = start!(player, moved);
    player.when(&moved, |view| view.status == Status::Stuck || view.status.is_final()).await?;
    let newer = Worker::builder(world)
        .state(state)
        .build("newer")
        .register((self::moved, interrupted, overdue, picky))
        .register((mark, endure));
    let newer = newer.start().await?;
    let outputs = player.play(&moved).await?;
    newer.stop().await?;
    older.stop().await?;
    Ok(outputs)
}

/// What the histories of the program have when all runs have ended, whenever it was killed.
pub(crate) fn check_end(end: &Picture) {
    let count = |key: &str, is_wanted: fn(&Event) -> bool| {
        end.runs[key].events().filter(|event| is_wanted(event)).count()
    };
    let is_cancel = |event: &Event| matches!(event, Event::CancelRequested { .. });
    assert_eq!(count("interrupted", is_cancel), 1, "it was cancelled once");
    assert_eq!(count("overdue", is_cancel), 1, "its deadline passed once");
    let is_rejected =
        |event: &Event| matches!(event, Event::HookReceived { judgement: Judgement::Rejected(_), .. });
    assert_eq!(count("picky", is_rejected), 1, "the payload was rejected once");
    let is_received = |event: &Event| matches!(event, Event::HookReceived { .. });
    assert_eq!(count("picky", is_received), 2, "each payload is recorded once");
}

struct Player {
    place: Place,
    client: Client,
    state: Arc<Outside>,
}

/// Starts a run under the workflow's name as its key.
macro_rules! start {
    ($player:expr, $workflow:ident $(, $builder:ident($value:expr))?) => {{
        let key = stringify!($workflow).to_owned();
        let run = $player.client.start($workflow, &key).key(&key)$(.$builder($value))?.await?;
        $player.place.note_ack(&Ack::Started(key));
        run
    }};
}
use start;

impl Player {
    async fn play(&self, moved: &RunHandle<String>) -> Result<Outputs, Error> {
        let overdue = start!(self, overdue, deadline("150ms"));
        let interrupted = start!(self, interrupted);
        let picky = start!(self, picky);
        try_join!(self.interrupt(&interrupted), self.answer(&picky))?;
        let mut outputs = Outputs::new();
        for run in [moved, &overdue, &interrupted, &picky] {
            note_output(&self.place, run, &mut outputs).await?;
        }
        Ok(outputs)
    }

    /// Cancels the run while its step is being attempted.
    async fn interrupt(&self, run: &RunHandle<String>) -> Result<(), Error> {
        if run.view().await?.sent == 0 {
            self.state.began.notified().await;
            run.cancel("enough").await?;
            self.place.note_ack(&Ack::Sent("interrupted".into(), 1));
        }
        Ok(())
    }

    /// Sends what the hook cannot read, and then what it waits for.
    async fn answer(&self, run: &RunHandle<String>) -> Result<(), Error> {
        let view = self.when(run, |view| view.sent > 0 || waits_for(view, "number")).await?;
        if view.sent == 0 {
            run.send("number", &"no number").await?;
            self.place.note_ack(&Ack::Sent("picky".into(), 1));
        }
        let view = self.when(run, |view| view.sent > 1 || view.consumed == 1).await?;
        if view.sent == 1 {
            run.send("number", &7).await?;
            self.place.note_ack(&Ack::Sent("picky".into(), 2));
        }
        Ok(())
    }

    async fn when(
        &self,
        run: &RunHandle<String>,
        is_so: impl Fn(&RunView) -> bool,
    ) -> Result<RunView, Error> {
        loop {
            let view = run.view().await?;
            if is_so(&view) {
                return Ok(view);
            }
            pass("2ms").await;
        }
    }
}

// --- workflows ---

#[workflow]
async fn moved(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(mark, (key, "arrived".to_owned())).await
}

#[workflow]
async fn interrupted(ctx: Context, key: String) -> Result<String, Error> {
    release_after(ctx, key).await
}

#[workflow]
async fn overdue(ctx: Context, key: String) -> Result<String, Error> {
    release_after(ctx, key).await
}

/// A step that ends by a cancel, or is not attempted any more because of one, and the clean-up.
async fn release_after(ctx: Context, key: String) -> Result<String, Error> {
    let endured = ctx.step(endure, &key).await;
    assert!(endured.is_ok() || ctx.is_cancelled(), "nothing but a cancel ends the step");
    ctx.shielded().step(mark, (key, "released".to_owned())).await
}

#[workflow]
async fn picky(ctx: Context, key: String) -> Result<String, Error> {
    let number = ctx.hook::<u32>("number").timeout("1h").await?;
    let told = ctx.step(mark, (key, "told".to_owned())).await?;
    Ok(format!("{number} {told}"))
}

// --- steps ---

#[step]
async fn mark(cx: StepContext<Arc<Outside>>, key: String, name: String) -> Result<String, StepError> {
    cx.state().place.note_effect(&cx, &key, &name);
    Ok(name)
}

/// Goes on until it is told to stop.
#[step]
async fn endure(cx: StepContext<Arc<Outside>>, key: String) -> Result<(), StepError> {
    cx.state().place.note_effect(&cx, &key, "endure");
    if key == "interrupted" {
        cx.state().began.notify_one();
    }
    cx.cancelled().await;
    Ok(())
}
