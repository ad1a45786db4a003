//! Starts and sends in a transaction of the caller.

use std::any::Any;

use outlast_core::refusal::check_start;
use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};
use tokio_postgres::{Error, Row, Transaction};

use crate::connection::database::{Parameter, Parameters};
use crate::error::{corrupt_error, known_rules, postgres_error};
use crate::world::PostgresWorld;
use crate::write::send::{SendParameters, read_answer};
use crate::write::start::{NewRuns, read_existing_runs, with_known_rules};

/// The savepoint with which a failed call is undone, without the rest of the transaction.
const SAVEPOINT: &str = "SAVEPOINT outlast_within";
const RELEASE_SAVEPOINT: &str = "RELEASE outlast_within";
const ROLLBACK_TO_SAVEPOINT: &str = "ROLLBACK TO outlast_within; RELEASE outlast_within";

/// Starts a run in a transaction of the caller on the world's database. The run begins when the transaction commits.
///
/// # Errors
///
/// Those of [`World::start`], and [`WorldError::Invalid`] when the transaction is in another database.
pub async fn start_within(
    tx: &Transaction<'_>,
    world: &dyn World,
    start: Start,
) -> Result<Started, WorldError> {
    let world = as_postgres_world(world)?;
    check_start(&start)?;
    let at = world.time().statement_time();
    let mut rules = None;
    let rows = loop {
        let mut new = NewRuns::default();
        new.add(&with_known_rules(&start, rules));
        // `true`: append to the table `unmerged` instead of changing counts. The transaction may stay open for long,
        // and no other transaction must wait for it.
        let values: [Parameter<'_>; 4] = [&at, &new.rows.array(), &new.events, &true];
        match execute_in_savepoint(tx, world, &world.database().sql.start, &values).await? {
            Ok(rows) => break rows,
            Err(known) => rules = Some(known),
        }
    };
    let existing_runs = read_existing_runs(&rows, world.time());
    match existing_runs.map_err(|why| corrupt_error(&world.database().place, &why))?.pop() {
        Some((_, existing)) => existing.resolve(&start),
        None => Ok(Started { run: start.run, is_new: true }),
    }
}

/// Appends a message to an inbox in a transaction of the caller on the world's database. It is delivered when the
/// transaction commits.
///
/// # Errors
///
/// Those of [`World::send`], and [`WorldError::Invalid`] when the transaction is in another database.
pub async fn send_within(
    tx: &Transaction<'_>,
    world: &dyn World,
    message: NewMessage,
) -> Result<Sent, WorldError> {
    let world = as_postgres_world(world)?;
    let parameters = SendParameters::of(std::slice::from_ref(&message))?;
    let at = world.time().statement_time();
    let values = parameters.values(&at);
    let rows = execute_in_savepoint(tx, world, &world.database().sql.send, &values).await?;
    match rows.unwrap_or_default().first() {
        Some(row) => {
            read_answer(&message, row).map_err(|why| corrupt_error(&world.database().place, &why))?
        }
        None => Err(WorldError::Corrupt("the database returned no answer to a send".into())),
    }
}

fn as_postgres_world(world: &dyn World) -> Result<&PostgresWorld, WorldError> {
    (world as &dyn Any).downcast_ref().ok_or_else(|| {
        WorldError::invalid(format!(
            "a transaction on Postgres cannot be used with a {} world; open the world with a `postgres:` URL",
            world.describe().kind
        ))
    })
}

/// Executes a statement in the transaction. If it fails, the transaction stays as it was. Other processes are notified
/// when the transaction commits. The inner error is the highest rules that every joined worker knows, if a start has
/// higher ones.
async fn execute_in_savepoint(
    tx: &Transaction<'_>,
    world: &PostgresWorld,
    sql: &str,
    values: Parameters<'_>,
) -> Result<Result<Vec<Row>, u32>, WorldError> {
    let place = &world.database().place;
    tx.batch_execute(SAVEPOINT).await.map_err(|error| postgres_error(&error, place))?;
    let result = match is_same_database(tx, world).await {
        Ok(true) => match execute_and_notify(tx, world, sql, values).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(error) => known_rules(&error).map(Err).ok_or_else(|| postgres_error(&error, place)),
        },
        Ok(false) => Err(wrong_database_error(place)),
        Err(error) if error.code().is_some() => Err(wrong_database_error(place)),
        Err(error) => Err(postgres_error(&error, place)),
    };
    let end = if matches!(result, Ok(Ok(_))) { RELEASE_SAVEPOINT } else { ROLLBACK_TO_SAVEPOINT };
    tx.batch_execute(end).await.map_err(|error| postgres_error(&error, place))?;
    result
}

/// Whether the transaction is in the world's database.
async fn is_same_database(tx: &Transaction<'_>, world: &PostgresWorld) -> Result<bool, Error> {
    let row = tx.query_one(&world.database().sql.identity, &[]).await?;
    Ok(row.get::<_, &str>(0) == world.identity())
}

async fn execute_and_notify(
    tx: &Transaction<'_>,
    world: &PostgresWorld,
    sql: &str,
    values: Parameters<'_>,
) -> Result<Vec<Row>, Error> {
    let rows = tx.query(sql, values).await?;
    tx.query(&world.database().sql.hint, &[]).await?;
    Ok(rows)
}

fn wrong_database_error(place: &str) -> WorldError {
    WorldError::invalid(format!(
        "the transaction is not in the database of the world at `{place}`, or its user lacks privileges on the schema; begin it there"
    ))
}
