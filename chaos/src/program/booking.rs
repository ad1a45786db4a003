//! The second workload of the kill loop: bookings in a table of the world's own database, by transactional steps. Some are
//! undone by compensations, some are started by a schedule, some fail and begin again by themselves or by a retry of the
//! client, and some are restarted or forked after their end.
//!
//! A row has no key, so an effect that happens twice, or without its outcome, is found by counting rows.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, Overlap, RunEnd, RunId, RunView, Status, WorkerBuilder};

use super::Result;
use super::report::Checks;
use super::snapshot::{RunSnapshot, WorldSnapshot};
use super::transfer::StepState;
use super::workdir::{Workdir, WorldKind};

/// The prefix of the key of a booking; its number follows.
pub(crate) const BOOKING: &str = "booking-";

/// The schedule, and how often it fires.
const SCHEDULE: &str = "bookings";
const INTERVAL: Duration = Duration::from_secs(1);

const CREATE: &str = "CREATE TABLE IF NOT EXISTS bookings (run text, effect text)";
const COUNTS: &str = "SELECT run, effect, count(*) FROM bookings GROUP BY run, effect";

const BOOK: Step<String, u32> = Step::new("book").transactional().attempts(20);
const CANCEL_BOOKING: Step<Undo<String, u32>, u32> = Step::new("cancel-booking").transactional();

#[step(name = "book", transactional)]
fn book_in_file(tx: &SqliteTx<'_>, cx: StepContext<StepState>, effect: String) -> Result<u32, StepError> {
    insert(tx, &cx, &effect)
}

#[step(name = "cancel-booking", transactional)]
fn cancel_in_file(
    tx: &SqliteTx<'_>,
    cx: StepContext<StepState>,
    undo: Undo<String, u32>,
) -> Result<u32, StepError> {
    insert(tx, &cx, undo_of(&undo)?)
}

#[step(name = "book", transactional)]
async fn book_on_server(
    tx: &mut PgTx<'_>,
    cx: StepContext<StepState>,
    effect: String,
) -> Result<u32, StepError> {
    insert_on_server(tx, &cx, &effect).await
}

#[step(name = "cancel-booking", transactional)]
async fn cancel_on_server(
    tx: &mut PgTx<'_>,
    cx: StepContext<StepState>,
    undo: Undo<String, u32>,
) -> Result<u32, StepError> {
    insert_on_server(tx, &cx, undo_of(&undo)?).await
}

/// The effect of a compensation. It is for a step that completed.
fn undo_of(undo: &Undo<String, u32>) -> Result<&'static str, StepError> {
    match undo.output {
        Some(_) => Ok("undo"),
        None => Err(StepError::fatal("a transactional step that did not complete is undone")),
    }
}

fn insert(tx: &SqliteTx<'_>, cx: &StepContext<StepState>, effect: &str) -> Result<u32, StepError> {
    cx.state().log_attempt(cx)?;
    let run = cx.run().to_string();
    tx.prepare_cached("INSERT INTO bookings VALUES (?1, ?2)")?.execute([&*run, effect])?;
    Ok(1)
}

async fn insert_on_server(
    tx: &PgTx<'_>,
    cx: &StepContext<StepState>,
    effect: &str,
) -> Result<u32, StepError> {
    cx.state().log_attempt(cx)?;
    let insert = tx.prepare_cached("INSERT INTO bookings VALUES ($1, $2)").await?;
    tx.execute(&insert, &[&cx.run().to_string(), &effect]).await?;
    Ok(1)
}

/// Books twice. A booking with a number that is divisible by three fails after the first, which is undone.
#[workflow]
pub(crate) async fn booking(ctx: Context, number: u64) -> Result<u32, Error> {
    let first = ctx.step(BOOK, "first").undo(CANCEL_BOOKING).await?;
    if number.is_multiple_of(3) {
        return Err(Error::msg("the second booking is not possible"));
    }
    if number.is_multiple_of(5) {
        ctx.sleep("20ms").await?;
    }
    let second = ctx.step(BOOK, "second").await?;
    ctx.keep();
    Ok(first + second)
}

/// Fails once, is undone, and begins again. A step follows its end.
#[workflow(on_failure = retry(attempts = 2, initial = "20ms"), on_end = ended)]
pub(crate) async fn unsteady_booking(ctx: Context) -> Result<u32, Error> {
    let first = ctx.step(BOOK, "first").undo(CANCEL_BOOKING).await?;
    if ctx.generation() == 1 {
        return Err(Error::msg("the desk is closed"));
    }
    ctx.keep();
    Ok(first)
}

#[step]
async fn ended(cx: StepContext<StepState>, end: RunEnd) {
    let _ = cx;
    assert_eq!(end.status, Status::Completed);
}

/// Fails because nobody pays in time. The client retries it, and pays then.
#[workflow]
pub(crate) async fn late_booking(ctx: Context) -> Result<u32, Error> {
    let first = ctx.step(BOOK, "first").await?;
    ctx.hook::<bool>(PAID).timeout("100ms").await?;
    let second = ctx.step(BOOK, "second").await?;
    Ok(first + second)
}

/// The hook of a late booking.
pub(crate) const PAID: &str = "paid";

/// A booking that the schedule starts.
#[workflow]
async fn scheduled_booking(ctx: Context) -> Result<u32, Error> {
    ctx.step(BOOK, "scheduled").await
}

/// Adds the code of this workload to a worker.
pub(crate) fn register(worker: WorkerBuilder<StepState>, world: WorldKind) -> WorkerBuilder<StepState> {
    let worker = worker.register((booking, scheduled_booking, unsteady_booking, late_booking, ended));
    match world {
        WorldKind::Sqlite => worker.register((book_in_file, cancel_in_file)),
        WorldKind::Postgres => worker.register((book_on_server, cancel_on_server)),
    }
}

/// Creates the table and the schedule.
pub(crate) async fn prepare(workdir: &Workdir, client: &Client) -> Result<()> {
    match workdir.world() {
        WorldKind::Sqlite => rusqlite::Connection::open(workdir.database())?.execute_batch(CREATE)?,
        WorldKind::Postgres => connect(workdir).await?.batch_execute(CREATE).await?,
    }
    client.schedule(SCHEDULE).every(INTERVAL).overlap(Overlap::Allow).start(scheduled_booking, ()).await?;
    Ok(())
}

/// Ends the schedule. Returns false if the world did not answer.
pub(crate) async fn end_schedule(client: &Client) -> Result<bool> {
    match client.schedule_handle(SCHEDULE).delete().await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(false),
        ended => {
            ended?;
            Ok(true)
        }
    }
}

async fn connect(workdir: &Workdir) -> Result<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(&workdir.url(), tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// How often each effect of each run happened.
async fn effects(workdir: &Workdir) -> Result<BTreeMap<(String, String), i64>> {
    if workdir.world() == WorldKind::Postgres {
        let rows = connect(workdir).await?.query(COUNTS, &[]).await?;
        return Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect());
    }
    let file = rusqlite::Connection::open(workdir.database())?;
    let mut statement = file.prepare(COUNTS)?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Makes one of a few bookings that have completed anew, and forks another one before its second booking. Repeating it
/// changes nothing.
pub(crate) async fn copy(client: &Client, view: &RunView) -> Result<(), Error> {
    let number = view.key.as_deref().and_then(|key| key.strip_prefix(BOOKING)?.parse::<u64>().ok());
    match number {
        Some(number) if number % COPIED_EVERY == 1 => {
            client.restart::<u32>(view.id).key(format!("restarted-{number}")).await?;
        }
        Some(number) if number % COPIED_EVERY == 2 => {
            let events = client.events(view.id).await?;
            let is_step = |event: &&outlast::EventView| event.event.kind() == "step_started";
            let Some(second) = events.iter().filter(is_step).nth(1) else { return Ok(()) };
            let id = RunId::from_bits(u128::from(number + 1) << 64 | 1);
            client.fork::<u32>(view.id).at(second.number).id(id).await?;
        }
        _ => {}
    }
    Ok(())
}

/// One booking of this many is restarted, and another one forked.
const COPIED_EVERY: u64 = 9;

/// What the check of this workload has found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BookingCounts {
    pub(crate) completed: usize,
    pub(crate) undone: usize,
    pub(crate) scheduled: usize,
    /// Those that have begun again by themselves.
    pub(crate) unsteady: usize,
    /// Those that the client has retried.
    pub(crate) late: usize,
    /// Restarted ones.
    pub(crate) restarted: usize,
    pub(crate) forked: usize,
}

impl BookingCounts {
    /// Checks that there were bookings of all kinds: otherwise nothing was proved about them.
    pub(crate) fn check_complete(self, checks: &mut Checks) -> Result<()> {
        let Self { completed, undone, scheduled, unsteady, late, restarted, forked } = self;
        let counts = [completed, undone, scheduled, unsteady, late, restarted, forked];
        checks.that(!counts.contains(&0), || format!("not all kinds of bookings were made: {self:?}"))
    }
}

/// Whether a run belongs to this workload.
pub(crate) fn is_booking(run: &RunSnapshot) -> bool {
    run.view.workflow.ends_with("booking")
}

/// Takes the runs of this workload out of a snapshot, and checks that each of their effects happened once.
pub(crate) async fn take_and_check(
    workdir: &Workdir,
    snapshot: &mut WorldSnapshot,
    checks: &mut Checks,
) -> Result<BookingCounts> {
    let (bookings, others) =
        std::mem::take(&mut snapshot.runs).into_iter().partition(|(_, run)| is_booking(run));
    snapshot.runs = others;
    let bookings: BTreeMap<String, RunSnapshot> = bookings;
    let (mut counts, mut expected) = (BookingCounts::default(), BTreeMap::new());
    for (key, run) in &bookings {
        let has_completed = run.view.status == Status::Completed;
        let number = key.strip_prefix(BOOKING).and_then(|number| number.parse::<u64>().ok());
        let is_undone = number.is_some_and(|number| number.is_multiple_of(3));
        checks.that(has_completed != is_undone, || {
            format!("{key} is {}: {:?}", run.view.status, last_event(run))
        })?;
        let (count, effects): (_, &[_]) = match &*run.view.workflow {
            "scheduled_booking" => (&mut counts.scheduled, &[("scheduled", 1)]),
            "unsteady_booking" => (&mut counts.unsteady, &[("first", 2), ("undo", 1)]),
            "late_booking" => (&mut counts.late, &[("first", 1), ("second", 1)]),
            _ if run.view.forked_from().is_some() => (&mut counts.forked, &[("second", 1)]),
            _ if is_undone => (&mut counts.undone, &[("first", 1), ("undo", 1)]),
            _ if number.is_none() => (&mut counts.restarted, &[("first", 1), ("second", 1)]),
            _ => (&mut counts.completed, &[("first", 1), ("second", 1)]),
        };
        *count += 1;
        let of_run =
            effects.iter().map(|(effect, count)| ((run.view.id.to_string(), effect.to_string()), *count));
        expected.extend(of_run);
        if &*run.view.workflow == "unsteady_booking" {
            let after = snapshot.after_end.get(&run.view.id).map_or(&[][..], Vec::as_slice);
            checks.that(after == [Status::Completed], || format!("the steps after {key} are {after:?}"))?;
        }
    }
    let found = effects(workdir).await?;
    for (effect, count) in &found {
        let is_expected = expected.get(effect) == Some(count);
        checks.that(is_expected, || format!("the effect {effect:?} happened {count} times"))?;
    }
    for effect in expected.keys() {
        checks.that(found.contains_key(effect), || format!("the effect {effect:?} did not happen"))?;
    }
    Ok(counts)
}

fn last_event(run: &RunSnapshot) -> Option<&Event> {
    run.history.last().and_then(|turn| turn.events.last())
}
