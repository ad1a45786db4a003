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
//! All tables and functions are in a schema of their own, `outlast` unless the URL names another. Histories can be read
//! with any tool: `SELECT * FROM outlast.events WHERE run = 'run_…' ORDER BY seq`.
//!
//! Every change is one statement, so a process that stops at any point leaves no lock and no half-done change behind.

// The contract `World`, method by method, and how it is opened.
mod options;
mod world;

// The calls: those that change the database, those that read it, and how concurrent calls share a statement.
mod batcher;
mod read;
mod write;

// How processes learn of each other's changes and of dead workers.
mod notifications;

// The schema in the database, and how values are written to it and read from it.
mod encoding;
mod schema;

// Connections and statements, the database's clock, and the errors of Postgres.
mod clock;
mod connection;
mod error;

pub use options::{Migrate, PostgresOptions};
pub use schema::migrate::migrate;
pub use world::PostgresWorld;
pub use write::in_transaction::{send_within, start_within};
pub use write::transactions::{PgStepFuture, PgStepWork, PgTx};

/// The pool that [`PostgresWorld::on_pool`] takes, and the driver whose transactions [`start_within`] and
/// [`send_within`] take part in, in the versions that this crate uses.
pub use {deadpool_postgres, tokio_postgres};
