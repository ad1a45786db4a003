//! Starts and sends inside a transaction of the caller's own connection to the file.

use std::any::Any;
use std::path::Path;

use outlast_core::{NewMessage, Sent, Start, Started, World, WorldError};
use rusqlite::Transaction;

use crate::connection::error::{Refusal, of_sqlite};
use crate::notifications::tx_watcher::Expected;
use crate::read::id_clock_skew::Skew;
use crate::sessions::session_locks::Locks;
use crate::world::SqliteWorld;
use crate::write::lease_cache::Holdings;
use crate::write::message::NewLetter;
use crate::write::send::send_by_client;
use crate::write::start::{NewRun, start};
use crate::write::tx::Tx;

/// What SQLite calls a part of the transaction that is undone by itself.
const SAVEPOINT: &str = "SAVEPOINT outlast_within";
const KEEP: &str = "RELEASE outlast_within";
const UNDO: &str = "ROLLBACK TO outlast_within; RELEASE outlast_within";

/// Starts a run inside a transaction of the caller's own on the world's file.
///
/// # Errors
///
/// Those of [`World::start`], and [`WorldError::Invalid`] when the transaction is on another file.
pub fn start_within(tx: &Transaction<'_>, world: &dyn World, new: Start) -> Result<Started, WorldError> {
    let (world, started) = take_part(tx, world, &NewRun::encode(new), start)?;
    world.expect_commit(Expected::Run(started.run));
    Ok(started)
}

/// Appends a message to an inbox inside a transaction of the caller's own on the world's file.
///
/// # Errors
///
/// Those of [`World::send`], and [`WorldError::Invalid`] when the transaction is on another file.
pub fn send_within(tx: &Transaction<'_>, world: &dyn World, message: NewMessage) -> Result<Sent, WorldError> {
    let expected = Expected::Message(message.run, message.id);
    let (world, sent) = take_part(tx, world, &NewLetter::encode(message)?, send_by_client)?;
    world.expect_commit(expected);
    Ok(sent)
}

/// Applies one change inside the transaction, or leaves the transaction as it was.
fn take_part<'w, E, A>(
    transaction: &Transaction<'_>,
    world: &'w dyn World,
    element: &E,
    apply: fn(&mut Tx<'_>, &E) -> Result<A, Refusal>,
) -> Result<(&'w SqliteWorld, A), WorldError> {
    let Some(world) = (world as &dyn Any).downcast_ref::<SqliteWorld>() else {
        return Err(WorldError::Invalid(format!(
            "a transaction on an SQLite file cannot take part in a {} world; open the world by `sqlite:`",
            world.describe().kind
        )));
    };
    let path = world.path();
    check_same_file(transaction, path)?;
    let store = |error: &rusqlite::Error| of_sqlite(error, path);
    transaction.execute_batch(SAVEPOINT).map_err(|error| store(&error))?;
    // As another process would: the worker's own knowledge of what it holds is not used.
    let (locks, mut holdings, mut skew) = (Locks::beside(path, true), Holdings::default(), Skew::default());
    let mut tx = Tx::new(transaction, world.clock().now(), &locks, &mut holdings, &mut skew);
    let applied =
        apply(&mut tx, element).and_then(|answer| tx.finish().map(|_| answer).map_err(Refusal::from));
    let end = if applied.is_ok() { KEEP } else { UNDO };
    transaction.execute_batch(end).map_err(|error| store(&error))?;
    Ok((world, applied.map_err(|refusal| refusal.into_world(path))?))
}

fn check_same_file(transaction: &Transaction<'_>, path: &Path) -> Result<(), WorldError> {
    let theirs = transaction.path().filter(|theirs| !theirs.is_empty());
    let canonical = |path: &Path| path.canonicalize().ok();
    match theirs {
        Some(theirs) if canonical(Path::new(theirs)) == canonical(path) => Ok(()),
        theirs => Err(WorldError::Invalid(format!(
            "the transaction is on {}, the world is `{}`; begin it on a connection to that file",
            theirs.map_or("no file".into(), |theirs| format!("`{theirs}`")),
            path.display()
        ))),
    }
}
