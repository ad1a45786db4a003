//! The world of Outlast on one SQLite file: nothing to install, several processes may share it.
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
//! Beside the file `shop.db` there are `shop.db-wal` and `shop.db-shm`, which belong to SQLite, and the
//! folders `shop.db-sessions` with one small locked file per joined worker, and `shop.db-bells` with one
//! socket per process, by which the others tell it that something changed. Who finds the file busy stands in
//! line by a lock on `shop.db-line`.

mod world;

mod options;

mod connection;
mod notifications;
mod read;
mod schema;
mod sessions;
mod write;

mod backup;

pub use backup::backup;
pub use options::{Durability, HintMode, SqliteOptions, SqliteUrl};
pub use world::SqliteWorld;
pub use write::within::{send_within, start_within};

/// The driver, in the version whose transactions starts and sends can take part in.
pub use rusqlite;
