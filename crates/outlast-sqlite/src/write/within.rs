//! Starts and sends in a transaction of the caller, on the caller's own connection to the file.

use std::any::Any;
use std::path::Path;

use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};
use rusqlite::Transaction;

use crate::connection::error::{Refusal, from_sqlite};
use crate::notifications::tx_watcher::AwaitedWrite;
use crate::read::id_clock_skew::IdClockSkew;
use crate::sessions::session_locks::SessionLocks;
use crate::world::SqliteWorld;
use crate::write::lease_cache::LeaseCache;
use crate::write::message::EncodedMessage;
use crate::write::send::send_by_client;
use crate::write::start::{EncodedStart, start};
use crate::write::tx::Tx;

/// A savepoint, so that a failed call can be undone without the rest of the transaction.
const SAVEPOINT: &str = "SAVEPOINT outlast_within";
const RELEASE_SAVEPOINT: &str = "RELEASE outlast_within";
const UNDO_TO_SAVEPOINT: &str = "ROLLBACK TO outlast_within; RELEASE outlast_within";

/// Starts a run in a transaction of the caller on the world's file. The run exists when that transaction commits.
///
/// # Errors
///
/// Those of [`World::start`], and [`WorldError::Invalid`] if the transaction is on another file.
pub fn start_within(tx: &Transaction<'_>, world: &dyn World, new: Start) -> Result<Started, WorldError> {
    let (world, started) = apply_in_savepoint(tx, world, &EncodedStart::encode(new), start)?;
    world.watch_commit(AwaitedWrite::Run(started.run));
    Ok(started)
}

/// Appends a message to an inbox in a transaction of the caller on the world's file. The message is sent when that
/// transaction commits.
///
/// # Errors
///
/// Those of [`World::send`], and [`WorldError::Invalid`] if the transaction is on another file.
pub fn send_within(tx: &Transaction<'_>, world: &dyn World, message: NewMessage) -> Result<Sent, WorldError> {
    let awaited = AwaitedWrite::Message(message.run, message.id);
    let (world, sent) = apply_in_savepoint(tx, world, &EncodedMessage::encode(message)?, send_by_client)?;
    world.watch_commit(awaited);
    Ok(sent)
}

/// Applies one change in the transaction. If it fails, the transaction is left unchanged.
fn apply_in_savepoint<'w, E, A>(
    transaction: &Transaction<'_>,
    world: &'w dyn World,
    element: &E,
    apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
) -> Result<(&'w SqliteWorld, A), WorldError> {
    let Some(world) = (world as &dyn Any).downcast_ref::<SqliteWorld>() else {
        return Err(WorldError::invalid(format!(
            "a transaction on an SQLite file cannot be used with a {} world; open the world with a `sqlite:` URL",
            world.describe().kind
        )));
    };
    world.file().check()?;
    let path = world.file().path();
    check_same_file(transaction, path)?;
    let to_world_error = |error: rusqlite::Error| from_sqlite(&error, path);
    transaction.execute_batch(SAVEPOINT).map_err(to_world_error)?;
    // Use an empty cache, like another process: the writer's cache belongs to the writer thread.
    let locks = SessionLocks::for_database(path, true);
    let (mut lease_cache, mut id_skew) = (LeaseCache::default(), IdClockSkew::default());
    let mut tx = Tx::new(transaction, world.clock().now(), &locks, &mut lease_cache, &mut id_skew);
    let applied =
        apply(&mut tx, element).and_then(|answer| tx.finish().map(|_| answer).map_err(Refusal::from));
    let end = if applied.is_ok() { RELEASE_SAVEPOINT } else { UNDO_TO_SAVEPOINT };
    transaction.execute_batch(end).map_err(to_world_error)?;
    Ok((world, applied.map_err(|refusal| refusal.into_world_error(path))?))
}

fn check_same_file(transaction: &Transaction<'_>, path: &Path) -> Result<(), WorldError> {
    let tx_path = transaction.path().filter(|tx_path| !tx_path.is_empty());
    let canonical = |path: &Path| path.canonicalize().ok();
    match tx_path {
        Some(tx_path) if canonical(Path::new(tx_path)) == canonical(path) => Ok(()),
        tx_path => Err(WorldError::invalid(format!(
            "the transaction is on {}, but the world is in `{}`; begin it on a connection to that file",
            tx_path.map_or("no file".into(), |tx_path| format!("`{tx_path}`")),
            path.display()
        ))),
    }
}
