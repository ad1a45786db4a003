//! Starts and sends inside a transaction of the caller's own.

use std::any::Any;

use outlast_core::refusal::check_start;
use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};
use tokio_postgres::{Error, Row, Transaction};

use crate::error::{corrupt, known_rules, of_postgres};
use crate::message::Values1;
use crate::send::{Asked, answer};
use crate::start::{NewRuns, existing, lowered};
use crate::store::Values;
use crate::world::PostgresWorld;

/// What undoes a call that is refused, and nothing else of the transaction.
const SAVEPOINT: &str = "SAVEPOINT outlast_within";
const KEEP: &str = "RELEASE outlast_within";
const UNDO: &str = "ROLLBACK TO outlast_within; RELEASE outlast_within";

/// Starts a run inside a transaction of the caller's own on the world's database.
///
/// # Errors
///
/// Those of [`World::start`], and [`WorldError::Invalid`] when the transaction is in another database.
pub async fn start_within(
    tx: &Transaction<'_>,
    world: &dyn World,
    start: Start,
) -> Result<Started, WorldError> {
    let world = ours(world)?;
    check_start(&start)?;
    let at = world.time().at();
    let mut rules = None;
    let rows = loop {
        let mut new = NewRuns::default();
        new.add(&lowered(&start, rules));
        // Counts are appended: the transaction may stay open for long, and nobody must wait for it.
        let values: [Values1<'_>; 4] = [&at, &new.rows.json(), &new.events, &true];
        match take_part(tx, world, &world.store().sql.start, &values).await? {
            Ok(rows) => break rows,
            Err(known) => rules = Some(known),
        }
    };
    let mut existing = existing(&rows, world.time()).map_err(|why| corrupt(&world.store().place, &why))?;
    match existing.pop() {
        Some((_, existing)) => existing.resolve(&start),
        None => Ok(Started { run: start.run, is_new: true }),
    }
}

/// Appends a message to an inbox inside a transaction of the caller's own on the world's database.
///
/// # Errors
///
/// Those of [`World::send`], and [`WorldError::Invalid`] when the transaction is in another database.
pub async fn send_within(
    tx: &Transaction<'_>,
    world: &dyn World,
    message: NewMessage,
) -> Result<Sent, WorldError> {
    let world = ours(world)?;
    let asked = Asked::of(std::slice::from_ref(&message))?;
    let at = world.time().at();
    let rows = take_part(tx, world, &world.store().sql.send, &asked.values(&at)).await?.unwrap_or_default();
    let damaged = |why: &_| corrupt(&world.store().place, why);
    match rows.first() {
        Some(row) => answer(&message, row).map_err(|why| damaged(&why))?,
        None => Err(WorldError::Corrupt("a send was not answered".into())),
    }
}

fn ours(world: &dyn World) -> Result<&PostgresWorld, WorldError> {
    (world as &dyn Any).downcast_ref().ok_or_else(|| {
        WorldError::Invalid(format!(
            "a transaction on Postgres cannot take part in a {} world; open the world by `postgres:`",
            world.describe().kind
        ))
    })
}

/// Runs a statement inside the transaction, or leaves the transaction as it was. Others hear of it when the
/// transaction commits. Answers the rules that every joined worker knows when a start has higher ones.
async fn take_part(
    tx: &Transaction<'_>,
    world: &PostgresWorld,
    sql: &str,
    values: Values<'_>,
) -> Result<Result<Vec<Row>, u32>, WorldError> {
    let place = &world.store().place;
    tx.batch_execute(SAVEPOINT).await.map_err(|error| of_postgres(&error, place))?;
    let taken = match is_same(tx, world).await {
        Ok(true) => match in_part(tx, world, sql, values).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) => known_rules(&error).map(Err).ok_or_else(|| of_postgres(&error, place)),
        },
        Ok(false) => Err(elsewhere(place)),
        Err(error) if error.code().is_some() => Err(elsewhere(place)),
        Err(error) => Err(of_postgres(&error, place)),
    };
    let end = if matches!(taken, Ok(Ok(_))) { KEEP } else { UNDO };
    tx.batch_execute(end).await.map_err(|error| of_postgres(&error, place))?;
    taken
}

async fn is_same(tx: &Transaction<'_>, world: &PostgresWorld) -> Result<bool, Error> {
    let row = tx.query_one(&world.store().sql.identity, &[]).await?;
    Ok(row.get::<_, &str>(0) == world.identity())
}

async fn in_part(
    tx: &Transaction<'_>,
    world: &PostgresWorld,
    sql: &str,
    values: Values<'_>,
) -> Result<Vec<Row>, Error> {
    let rows = tx.query(sql, values).await?;
    tx.query(&world.store().sql.hint, &[]).await?;
    Ok(rows)
}

fn elsewhere(place: &str) -> WorldError {
    WorldError::Invalid(format!(
        "the transaction is not in the database of the world at `{place}`, or may not use its schema; begin it there"
    ))
}
