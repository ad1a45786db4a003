//! The world of Outlast on Postgres: any number of workers, in any number of processes.
//!
//! ```no_run
//! use outlast_core::WorldError;
//! use outlast_postgres::{PostgresOptions, PostgresWorld};
//!
//! async fn open_shop() -> Result<PostgresWorld, WorldError> {
//!     PostgresWorld::open("postgres://shop@db.example/shop", PostgresOptions::new()).await
//! }
//! ```
//!
//! All tables and functions are in a schema of their own, `outlast` unless the URL says otherwise. Histories
//! can be read with any tool: `SELECT * FROM outlast.events WHERE run = 'run_…' ORDER BY seq`.
//!
//! Every change is one statement, so that a process that stops in the middle of anything holds nothing.

mod world;
mod young;

mod options;
mod passfile;
mod url;

mod blocked;
mod columns;
mod commit;
mod fields;
mod outbox;
mod refused;
mod start;
mod turn;

mod claim;
mod prune;
mod send;
mod session;
mod within;

mod ends;
mod group;
mod list;
mod looks;
mod page;
mod skew;

mod poll;
mod side;
mod told;
mod voice;
mod watch;

mod clock;
mod connect;
mod error;
mod greet;
mod home;
mod message;
mod migrate;
mod row;
mod sql;
mod store;
mod text;
mod tls;
mod tuned;

pub use migrate::migrate;
pub use options::{Migrate, PostgresOptions};
pub use within::{send_within, start_within};
pub use world::PostgresWorld;

/// The pool that [`PostgresWorld::on_pool`] takes, and the driver whose transactions starts and sends can take part
/// in, in the versions that fit.
pub use {deadpool_postgres, tokio_postgres};
