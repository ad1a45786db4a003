//! A program with a saga after which its run continues, a run that is started and sent to in one call, a schedule whose
//! past is backfilled, a loop so long that its skipped turns are deleted, and a run that is put into quarantine, released
//! and deleted.

use std::sync::Arc;
use std::time::Duration;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, RunView, Timestamp, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::{ExpectedRun, log_output, sleep};
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::WorldSnapshot;

/// The run whose skipped turns are deleted, after every 1,000 events. A process that is killed before it does so leaves that to
/// the next deletion.
pub(crate) const TRIMMED: &str = "trimmed";

const ITERATIONS: u32 = 1_500;
const ITERATIONS_PER_TURN: u32 = 150;

/// The runs of the program. A firing has the key of its instant; this is the key under which its steps log their effects.
pub(crate) const RUNS: [ExpectedRun; 5] = [
    ExpectedRun { key: "firing 0", output: "0", branches: 1, is_deterministic: true },
    ExpectedRun { key: "firing 1", output: "1", branches: 1, is_deterministic: true },
    ExpectedRun { key: "sum", output: "3", branches: 1, is_deterministic: true },
    ExpectedRun { key: TRIMMED, output: "1500", branches: 1, is_deterministic: true },
    ExpectedRun { key: "trip", output: "sold out, 3", branches: 1, is_deterministic: true },
];

/// The first two instants of the schedule are in the past, the next one is in 2028.
const FIRST: Timestamp = Timestamp::from_micros(1_577_836_800_000_000);
const INTERVAL: Duration = Duration::from_secs(1_000 * 86_400);
const SCHEDULE: &str = "thousand-days";

/// The key of a run: that of its start, or that of the program for a firing.
pub(crate) fn key_of(view: &RunView) -> Option<String> {
    let instant = view.key.as_deref()?.strip_prefix("outlast:firing:")?.rsplit(':').next()?.parse().ok()?;
    Some(key_of_firing(Timestamp::from_micros(instant)))
}

fn key_of_firing(instant: Timestamp) -> String {
    format!("firing {}", number_of_firing(instant))
}

fn number_of_firing(instant: Timestamp) -> u64 {
    instant.since(FIRST).as_secs() / INTERVAL.as_secs()
}

/// Starts all runs, and waits until all have ended. It may be killed at any time and run again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((trip, sum, trimmed, fired, removed))
        .register((apply, revert))
        .start()
        .await?;
    let client = Client::new(world);
    let mut runs = Vec::new();
    runs.push(client.start(trip, "trip").key("trip").await?);
    process_folder.log_ack(&Ack::Started("trip".into()));
    runs.push(start_and_send(process_folder, &client).await?);
    runs.push(client.start(trimmed, ()).key(TRIMMED).await?);
    process_folder.log_ack(&Ack::Started(TRIMMED.into()));
    let mut outputs = Outputs::new();
    backfill(&client, &mut outputs).await?;
    remove(&client).await?;
    for run in &runs {
        log_output(process_folder, run, &mut outputs).await?;
    }
    worker.stop().await?;
    Ok(outputs)
}

/// Starts the sum with its first number, and sends the second one, each in one call.
async fn start_and_send(process_folder: &ProcessFolder, client: &Client) -> Result<RunHandle<String>, Error> {
    let start = || client.start(sum, ()).key("sum");
    for number in [1, 2] {
        match start().and_send("add", &number).send_key(number.to_string()).await {
            // An earlier process has sent both numbers, and the run has ended.
            Err(error) if error.is_conflict() => break,
            sent => drop(sent?),
        }
        process_folder.log_ack(&Ack::Sent("sum".into(), number));
    }
    start().await
}

/// Creates the schedule, unless everything has fired, backfills its past, and deletes it.
async fn backfill(client: &Client, outputs: &mut Outputs) -> Result<(), Error> {
    if !have_fired(client).await? {
        let schedule = client.schedule(SCHEDULE).every(INTERVAL).start_at(FIRST);
        let schedule = schedule.start(fired, ()).await?;
        schedule.backfill(FIRST..FIRST.plus(INTERVAL + Duration::from_secs(1))).await?;
        while !have_fired(client).await? {
            sleep("2ms").await;
        }
    }
    match client.schedule_handle(SCHEDULE).delete().await {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        deleted => deleted?,
    }
    for view in client.list().tag("outlast:schedule", SCHEDULE).await?.runs {
        let output = client.handle::<String>(view.id).output().await?;
        outputs.insert(key_of(&view).unwrap(), output);
    }
    Ok(())
}

/// Whether both firings have ended.
async fn have_fired(client: &Client) -> Result<bool, Error> {
    let fired = client.list().tag("outlast:schedule", SCHEDULE).await?.runs;
    Ok(fired.iter().filter(|view| view.status.is_final()).count() == 2)
}

/// Starts a run, and deletes it after a quarantine that prevented that.
async fn remove(client: &Client) -> Result<(), Error> {
    let run = client.start(removed, ()).key("removed").await?;
    run.output().await?;
    client.quarantine(run.id()).await?;
    assert!(client.delete(run.id()).await.unwrap_err().is_conflict(), "it is in quarantine");
    client.release(run.id()).await?;
    client.delete(run.id()).await?;
    assert_eq!(run.view().await.unwrap_err().kind(), ErrorKind::NotFound);
    Ok(())
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot) {
    let trimmed = &end.runs[TRIMMED];
    let last = trimmed.history.last().unwrap();
    let (all, left) = (last.seq + last.events.len() as u64, trimmed.events().count() as u64);
    assert!(all > 3_000 && left < all - 500, "{left} of {all} events are left");
    let kinds: Vec<_> = end.runs["trip"].events().map(Event::kind).collect();
    let undone = kinds.iter().filter(|kind| **kind == "compensation_started").count();
    assert_eq!(undone, 2, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"run_completed"));
    assert_eq!(end.runs["sum"].view.sent, 2, "each number is sent once");
}

// --- workflows ---

/// Its saga compensates for two of its steps, and the run continues.
#[workflow]
async fn trip(ctx: Context, key: String) -> Result<String, Error> {
    let booked = ctx.saga(async |ctx| {
        ctx.step(apply, (key.clone(), 1)).undo(revert).await?;
        ctx.step(apply, (key.clone(), 2)).undo(revert).await?;
        Err::<(), _>(Error::msg("sold out"))
    });
    let error = booked.await.unwrap_err();
    let last = ctx.step(apply, (key.clone(), 3)).await?;
    Ok(format!("{}, {last}", error.message()))
}

#[workflow]
async fn sum(ctx: Context) -> Result<String, Error> {
    let numbers = (ctx.hook::<u64>("add").await?, ctx.hook::<u64>("add").await?);
    Ok((numbers.0 + numbers.1).to_string())
}

/// Has no steps: an attempt whose turn is deleted could not be checked.
#[workflow]
async fn trimmed(ctx: Context) -> Result<String, Error> {
    ctx.iterate("count", 0_u32, async |ctx, done| {
        let next = ctx.record("next", || done + 1)?;
        if next.is_multiple_of(ITERATIONS_PER_TURN) {
            ctx.sleep("1ms").await?;
        }
        Ok(if next == ITERATIONS { Next::Done(next.to_string()) } else { Next::Again(next) })
    })
    .await
}

#[workflow]
async fn fired(ctx: Context) -> Result<String, Error> {
    let instant = ctx.scheduled_at().unwrap();
    let number = number_of_firing(instant) as u32;
    Ok(ctx.step(apply, (key_of_firing(instant), number)).await?.to_string())
}

#[workflow]
async fn removed(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1ms").await
}

// --- steps ---

#[step]
async fn apply(cx: StepContext<ProcessFolder>, key: String, number: u32) -> u32 {
    cx.state().log_effect(&cx, &key, "apply");
    number
}

#[step]
async fn revert(cx: StepContext<ProcessFolder>, undo: Undo<(String, u32), u32>) -> Result<(), StepError> {
    let (key, number) = &undo.input;
    assert_eq!(undo.output, Some(*number), "the recorded output");
    cx.state().log_effect(&cx, key, "revert");
    Ok(())
}
