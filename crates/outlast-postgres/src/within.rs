//! Starts and sends inside a transaction of the caller's own.

use std::any::Any;

use outlast_core::refusal::check_start;
use outlast_core::{NewMessage, Start, Started, World, WorldError};
use tokio_postgres::{Error, Row, Transaction};

use crate::error::{corrupt, of_postgres};
use crate::message::{Letters, Values1};
use crate::send::answer;
use crate::start::{NewRuns, existing};
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
    let mut new = NewRuns::default();
    new.add(&start);
    let at = world.time().at();
    let rows = take_part(tx, world, &world.store().sql.start, &new.parameters(&at)).await?;
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
) -> Result<u64, WorldError> {
    let world = ours(world)?;
    let letters = Letters::encode(std::slice::from_ref(&message))?;
    let at = world.time().at();
    let mut values: Vec<Values1<'_>> = vec![&at];
    values.extend(letters.values());
    let rows = take_part(tx, world, &world.store().sql.send, &values).await?;
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
/// transaction commits.
async fn take_part(
    tx: &Transaction<'_>,
    world: &PostgresWorld,
    sql: &str,
    values: Values<'_>,
) -> Result<Vec<Row>, WorldError> {
    let place = &world.store().place;
    tx.batch_execute(SAVEPOINT).await.map_err(|error| of_postgres(&error, place))?;
    let taken = match is_same(tx, world).await {
        Ok(true) => in_part(tx, world, sql, values).await.map_err(|error| of_postgres(&error, place)),
        Ok(false) => Err(elsewhere(place)),
        Err(error) if error.code().is_some() => Err(elsewhere(place)),
        Err(error) => Err(of_postgres(&error, place)),
    };
    let end = if taken.is_ok() { KEEP } else { UNDO };
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
