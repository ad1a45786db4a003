//! Real servers for tests, benchmarks and chaos: started in temporary folders on free ports of the
//! loopback, and gone with the process that started them, however it ends.
//!
//! ```no_run
//! # fn main() -> throwaway::Result<()> {
//! let mut postgres = throwaway::Postgres::builder().quick().start()?;
//! println!("{}", postgres.url());
//! postgres.kill()?; // a crash
//! postgres.start()?; // the same folder and port
//! # Ok(())
//! # }
//! ```
//!
//! Tests that only need a server somewhere ask [`postgres::for_tests`].

pub mod apt;
pub mod pgbouncer;
pub mod postgres;
pub mod proxy;

mod account;
mod address;
mod error;
mod folder;
mod guard;
mod patience;
mod port;
mod programs;
mod random;

pub use address::Address;
pub use error::{Error, Result};
pub use pgbouncer::{Pgbouncer, pgbouncer};
pub use postgres::Postgres;
pub use proxy::{Exchange, Proxy, Toward, Weather, proxy};
