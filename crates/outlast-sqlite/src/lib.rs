//! The world of Outlast on one SQLite file. It needs no server, and several processes can share the file.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use outlast_core::{Clock, WorldError};
//! use outlast_sqlite::{SqliteOptions, SqliteWorld};
//!
//! fn open_shop(clock: Arc<dyn Clock>) -> Result<SqliteWorld, WorldError> {
//!     SqliteWorld::open("sqlite:shop.db", SqliteOptions::new(clock))
//! }
//! ```
//!
//! Histories can be read with any SQLite tool:
//! `SELECT * FROM events WHERE run = 'run_…' ORDER BY seq`.
//!
//! The world creates these files and folders next to `shop.db`:
//!
//! | path | purpose |
//! |---|---|
//! | `shop.db-wal`, `shop.db-shm` | the write-ahead log and shared memory of SQLite |
//! | `shop.db-sessions` | one small locked file per joined worker, so that others detect its death |
//! | `shop.db-bells` | one socket per process, through which other processes send it hints |
//! | `shop.db-line` | a lock file in which a process queues when another process is writing |

// The modules are in the order in which to read them.

/// The `World` contract, method by method.
mod world;

/// The options and the URL.
mod options;

/// Connections to the file: opening it, waiting for other processes, errors, threads and the clock.
mod connection;

/// The schema: migrations, statements, and the conversion of rows.
mod schema;

/// Changes: the writer thread, its transactions, and the operations on runs and messages.
mod write;

/// Sessions of workers: joining, beating, takeover, and claims.
mod sessions;

/// Queries: reader threads, views, pages and histories.
mod read;

/// Changes by other processes: how this process notices them, and how it tells others of its own.
mod notifications;

/// Copies of the file.
mod backup;

pub use backup::backup;
pub use options::{Durability, HintMode, SqliteOptions, SqliteUrl};
pub use world::SqliteWorld;
pub use write::transactions::{SqliteTx, StepWork};
pub use write::within::{send_within, start_within};

/// The SQLite driver, in the version whose transactions `start_within` and `send_within` accept.
pub use rusqlite;
