//! Real servers for tests, benchmarks and chaos: started in temporary folders on free ports of the
//! loopback, and ended with the process that started them, even if it is killed.
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
//! Tests that only need the URL of a server call [`postgres::for_tests`]; [`needs_postgres!`] skips a test where there is no
//! Postgres.

pub mod apt;
pub mod axe;
pub mod chromedriver;
pub mod pgbouncer;
pub mod postgres;
pub mod promtool;
pub mod proxy;
pub mod skipped;

mod account;
mod address;
mod error;
mod folder;
mod guarded_process;
mod port;
mod programs;
mod random;
mod wait;

pub use address::Address;
pub use chromedriver::ChromeDriver;
pub use error::{Error, Result};
pub use pgbouncer::{Pgbouncer, PoolMode, pgbouncer};
pub use postgres::Postgres;
pub use proxy::{Exchange, NetworkCondition, Proxy, Toward, proxy};
pub use wait::{wait_until, wait_until_or};
