//! A program whose runs fail and compensate: one with five compensations of which one fails for good, one with a step
//! that is in progress when its sibling fails, one that is cancelled while it waits, and one that begins again after it
//! has failed, with a step after its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{RunEnd, Status, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::{ExpectedRun, log_output, sleep, waits_for};
use crate::process_folder::{Ack, Effect, Outputs, ProcessFolder};
use crate::snapshot::{RunSnapshot, WorldSnapshot};

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 4] = [
    ExpectedRun {
        key: "sold_out",
        output: "Error: sold out (a compensation failed: `revert`, operation 5: the third cannot be reverted)",
        branches: 1,
        is_deterministic: true,
    },
    // Whether its slow step is attempted again or ends as maybe attempted depends on where the process is killed.
    ExpectedRun {
        key: "in_flight",
        output: "Fatal: the sibling failed",
        branches: 2,
        is_deterministic: false,
    },
    ExpectedRun {
        key: "withdrawn",
        output: "Cancelled: cancelled: enough",
        branches: 1,
        is_deterministic: true,
    },
    // Its pause has jitter.
    ExpectedRun { key: "second_try", output: "done", branches: 1, is_deterministic: false },
];

/// Starts all runs, and waits until all have ended. It may be killed at any time and run again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((sold_out, in_flight, withdrawn, second_try, announce))
        .register((apply, revert, release, slow, revert_slow, fail))
        .start()
        .await?;
    let client = Client::new(world);
    let mut runs = Vec::new();
    macro_rules! start {
        ($($workflow:ident),*) => {$(
            let key = stringify!($workflow).to_owned();
            runs.push(client.start($workflow, &key).key(&key).await?);
            process_folder.log_ack(&Ack::Started(key));
        )*};
    }
    start!(sold_out, in_flight, withdrawn, second_try);
    cancel(process_folder, &runs[2]).await?;
    let mut outputs = Outputs::new();
    for run in &runs {
        log_output(process_folder, run, &mut outputs).await?;
    }
    // The step after the end of the last run.
    loop {
        let steps = client.list().parent(runs[3].id()).queued_steps().await?;
        if steps.runs.iter().all(|step| step.status.is_final()) {
            break;
        }
        sleep("2ms").await;
    }
    worker.stop().await?;
    Ok(outputs)
}

/// Cancels the run while it waits.
async fn cancel(process_folder: &ProcessFolder, run: &RunHandle<String>) -> Result<(), Error> {
    let mut view = run.view().await?;
    while view.sent == 0 && !waits_for(&view, "never") {
        sleep("2ms").await;
        view = run.view().await?;
    }
    if view.sent == 0 {
        run.cancel("enough").await?;
        process_folder.log_ack(&Ack::Sent("withdrawn".into(), 1));
    }
    Ok(())
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot, effects: &[Effect]) {
    for (key, status) in
        [("sold_out", Status::Failed), ("in_flight", Status::Failed), ("withdrawn", Status::Cancelled)]
    {
        let run = &end.runs[key];
        assert_eq!(run.view.status, status, "{key}");
        let is_compensated = key != "sold_out";
        assert_eq!(run.view.marks.is_compensated(), is_compensated, "{key}: {}", run.view.marks);
        assert!(!run.view.marks.is_compensating(), "{key}");
        let decisions = run.events().filter(|event| matches!(event, Event::RunCompensating { .. })).count();
        assert_eq!(decisions, 1, "{key} decided once to compensate");
    }
    assert_eq!(outcomes(&end.runs["sold_out"]), ["9 done", "7 done", "5 failed", "3 done", "1 done"]);
    assert_eq!(outcomes(&end.runs["withdrawn"]), ["2 done", "1 done"]);
    assert_eq!(outcomes(&end.runs["in_flight"]), ["1 done"]);
    assert!(effects.iter().any(|effect| effect.step == "announce"), "the step after the end");
    let second = &end.runs["second_try"];
    assert_eq!((second.view.status, second.view.generation), (Status::Completed, 2));
    let kinds: Vec<_> = second.events().map(Event::kind).filter(|kind| kind.starts_with("run_")).collect();
    assert_eq!(kinds, ["run_started", "run_retrying", "run_continued", "run_completed"]);
    assert_eq!(outcomes(second), ["1 done"], "the first try was compensated");
    assert!(
        effects.iter().all(|effect| effect.step != EARLY),
        "it was reverted while in progress: {effects:?}"
    );
}

/// The registrations of the compensations in the order in which they began, and how each ended.
fn outcomes(run: &RunSnapshot) -> Vec<String> {
    let mut running = None;
    let mut outcomes = Vec::new();
    for event in run.events() {
        match event {
            Event::CompensationStarted { op, of, .. } => {
                assert_eq!(running.replace((*op, *of)), None, "one after the other");
            }
            Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } => {
                if let Some((_, of)) = running.take_if(|(running, _)| running == op) {
                    let is_done = matches!(event, Event::StepCompleted { .. });
                    outcomes.push(format!("{of} {}", if is_done { "done" } else { "failed" }));
                }
            }
            _ => {}
        }
    }
    outcomes
}

// --- workflows ---

/// The third of its five compensations fails for good.
#[workflow]
async fn sold_out(ctx: Context, key: String) -> Result<String, Error> {
    for number in 1..=5 {
        ctx.step(apply, (key.clone(), number)).undo(revert).await?;
    }
    Err(Error::msg("sold out"))
}

/// A step is in progress when its sibling fails.
#[workflow]
async fn in_flight(ctx: Context, key: String) -> Result<String, Error> {
    let slow = ctx.step(slow, &key).undo(revert_slow);
    let (output, ()) = try_join!(slow, ctx.step(fail, &key))?;
    Ok(output)
}

#[workflow]
async fn withdrawn(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(apply, (key.clone(), 1)).undo(revert).await?;
    ctx.compensate(release, &key)?;
    ctx.hook::<String>("never").await
}

/// Fails once, and compensates for that.
#[workflow(on_failure = retry(attempts = 2, initial = "20ms"), on_end = announce)]
async fn second_try(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(apply, (key.clone(), 1)).undo(revert).await?;
    if ctx.generation() == 1 {
        return Err(Error::msg("once more"));
    }
    Ok("done".into())
}

// --- steps ---

#[step]
async fn announce(cx: StepContext<ProcessFolder>, end: RunEnd) {
    assert_eq!(end.status, Status::Completed);
    cx.state().log_effect(&cx, &end.workflow, "announce");
}

/// The attempts at `slow` in this process that have not ended.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// The effect of a compensation that ran too early.
const EARLY: &str = "revert before it ended";

#[step]
async fn apply(cx: StepContext<ProcessFolder>, key: String, number: u32) -> Result<u32, StepError> {
    cx.state().log_effect(&cx, &key, "apply");
    Ok(number * 10)
}

#[step]
async fn revert(cx: StepContext<ProcessFolder>, undo: Undo<(String, u32), u32>) -> Result<(), StepError> {
    let (key, number) = &undo.input;
    cx.state().log_effect(&cx, key, "revert");
    assert_eq!(undo.output, Some(number * 10), "the recorded output");
    if key == "sold_out" && *number == 3 {
        return Err(StepError::fatal("the third cannot be reverted"));
    }
    Ok(())
}

#[step]
async fn release(cx: StepContext<ProcessFolder>, key: String) {
    cx.state().log_effect(&cx, &key, "release");
}

/// Ignores that it is asked to stop: it has its effect a moment later.
#[step]
async fn slow(cx: StepContext<ProcessFolder>, key: String) -> Result<String, StepError> {
    cx.state().log_effect(&cx, &key, "slow");
    RUNNING.fetch_add(1, Ordering::SeqCst);
    sleep("60ms").await;
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    Ok("applied".into())
}

#[step]
async fn revert_slow(cx: StepContext<ProcessFolder>, undo: Undo<String, String>) -> Result<(), StepError> {
    let is_running = RUNNING.load(Ordering::SeqCst) > 0;
    cx.state().log_effect(&cx, &undo.input, if is_running { EARLY } else { "revert" });
    Ok(())
}

#[step]
async fn fail(cx: StepContext<ProcessFolder>, key: String) -> Result<(), StepError> {
    cx.state().log_effect(&cx, &key, "fail");
    sleep("20ms").await;
    Err(StepError::fatal("the sibling failed"))
}
