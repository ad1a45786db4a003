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

mod heartbeat;
mod holdings;
mod skew;
mod turnstile;
mod tx;
mod writer;

mod claim;
mod commit;
mod prune;
mod ready;
mod send;
mod session;
mod start;
mod turn;
mod within;

mod backup;
#[cfg(unix)]
mod doorbell;
#[cfg(not(unix))]
#[path = "no_doorbell.rs"]
mod doorbell;
mod ends;
mod expected;
mod list;
mod lookout;
mod outbox;
mod page;
mod readers;

mod clock;
mod columns;
mod error;
mod file;
mod locks;
mod message;
mod migrate;
mod row;
mod sql;
mod thread;

pub use backup::backup;
pub use options::{Durability, HintMode, SqliteOptions, SqliteUrl};
pub use within::{send_within, start_within};
pub use world::SqliteWorld;

/// The driver, in the version whose transactions starts and sends can take part in.
pub use rusqlite;
