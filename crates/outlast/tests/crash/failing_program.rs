//! A program whose runs fail: a cancel and a deadline during a step, with a shielded clean-up after each, a payload
//! that no hook can decode, and a build that lacks a step, after which another build continues the run.

use std::sync::Arc;

use outlast::core::{Event, Judgement};
use outlast::prelude::*;
use outlast::{RunView, Status, World};
use outlast_conformance::KillerWorld;
use tokio::sync::Notify;

use crate::mixed_program::{ExpectedRun, log_output, sleep, waits_for};
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::WorldSnapshot;

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 4] = [
    ExpectedRun { key: "moved", output: "arrived", branches: 1, is_deterministic: true },
    ExpectedRun { key: "interrupted", output: "released", branches: 1, is_deterministic: true },
    // Whether its step is attempted at all depends on the time until the next process.
    ExpectedRun { key: "overdue", output: "released", branches: 1, is_deterministic: false },
    ExpectedRun { key: "picky", output: "7 told", branches: 1, is_deterministic: true },
];

/// The state of the steps.
#[derive(Debug)]
struct StepState {
    process_folder: ProcessFolder,
    /// Notified when a step that waits for a cancel has begun.
    began: Notify,
}

/// Starts all runs, causes their failures, and waits until all have ended. It may be killed at any time and run again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = Arc::new(StepState { process_folder: process_folder.clone(), began: Notify::new() });
    let driver = Driver {
        process_folder: process_folder.clone(),
        client: Client::new(world.clone()),
        state: state.clone(),
    };
    // The older build has no code for the step. It leaves the run stuck, and the newer one continues it.
    let older = Worker::builder(world.clone()).state(state.clone()).build("older").register(moved);
    let older = older.start().await?;
    let moved = start!(driver, moved);
    driver.wait_for(&moved, |view| view.status == Status::Stuck || view.status.is_final()).await?;
    let newer = Worker::builder(world)
        .state(state)
        .build("newer")
        .register((self::moved, interrupted, overdue, picky))
        .register((mark, endure));
    let newer = newer.start().await?;
    let outputs = driver.run(&moved).await?;
    newer.stop().await?;
    older.stop().await?;
    Ok(outputs)
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot) {
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

struct Driver {
    process_folder: ProcessFolder,
    client: Client,
    state: Arc<StepState>,
}

/// Starts a run with the workflow's name as its key.
macro_rules! start {
    ($driver:expr, $workflow:ident $(, $builder:ident($value:expr))?) => {{
        let key = stringify!($workflow).to_owned();
        let run = $driver.client.start($workflow, &key).key(&key)$(.$builder($value))?.await?;
        $driver.process_folder.log_ack(&Ack::Started(key));
        run
    }};
}
use start;

impl Driver {
    async fn run(&self, moved: &RunHandle<String>) -> Result<Outputs, Error> {
        let overdue = start!(self, overdue, deadline("150ms"));
        let interrupted = start!(self, interrupted);
        let picky = start!(self, picky);
        try_join!(self.interrupt(&interrupted), self.answer(&picky))?;
        let mut outputs = Outputs::new();
        for run in [moved, &overdue, &interrupted, &picky] {
            log_output(&self.process_folder, run, &mut outputs).await?;
        }
        Ok(outputs)
    }

    /// Cancels the run while its step is being attempted.
    async fn interrupt(&self, run: &RunHandle<String>) -> Result<(), Error> {
        if run.view().await?.sent == 0 {
            self.state.began.notified().await;
            run.cancel("enough").await?;
            self.process_folder.log_ack(&Ack::Sent("interrupted".into(), 1));
        }
        Ok(())
    }

    /// Sends a payload that the hook cannot decode, and then one that it can.
    async fn answer(&self, run: &RunHandle<String>) -> Result<(), Error> {
        let view = self.wait_for(run, |view| view.sent > 0 || waits_for(view, "number")).await?;
        if view.sent == 0 {
            run.send("number", &"no number").await?;
            self.process_folder.log_ack(&Ack::Sent("picky".into(), 1));
        }
        let view = self.wait_for(run, |view| view.sent > 1 || view.consumed == 1).await?;
        if view.sent == 1 {
            run.send("number", &7).await?;
            self.process_folder.log_ack(&Ack::Sent("picky".into(), 2));
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        run: &RunHandle<String>,
        is_met: impl Fn(&RunView) -> bool,
    ) -> Result<RunView, Error> {
        loop {
            let view = run.view().await?;
            if is_met(&view) {
                return Ok(view);
            }
            sleep("2ms").await;
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

/// A step that a cancel ends or prevents, and the clean-up.
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
async fn mark(cx: StepContext<Arc<StepState>>, key: String, name: String) -> Result<String, StepError> {
    cx.state().process_folder.log_effect(&cx, &key, &name);
    Ok(name)
}

/// Runs until it is cancelled.
#[step]
async fn endure(cx: StepContext<Arc<StepState>>, key: String) -> Result<(), StepError> {
    cx.state().process_folder.log_effect(&cx, &key, "endure");
    if key == "interrupted" {
        cx.state().began.notify_one();
    }
    cx.cancelled().await;
    Ok(())
}
