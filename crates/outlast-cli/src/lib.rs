//! The command line of Outlast: the program `outlast`, and a library that gives your own program its commands.
//!
//! Your program registers its workflows and steps with an [`App`], and gets the commands `worker`, `check`, `dev`, `serve`
//! and all commands that start, inspect and control runs:
//!
//! ```no_run
//! use outlast::prelude::*;
//!
//! #[step]
//! async fn charge(cents: u64) -> Result<String, StepError> {
//!     Ok(format!("payment of {cents}"))
//! }
//!
//! #[workflow]
//! async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
//!     ctx.step(charge, cents).await
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     outlast_cli::App::new().register((checkout, charge)).main()
//! }
//! ```
//!
//! ```text
//! myapp worker --world sqlite:shop.db        executes runs
//! myapp start checkout 4200 --wait           starts one, and prints its output
//! myapp check --world postgres://…           replays all open runs before a deploy
//! ```
//!
//! Commands ask through the trait [`Surface`]: [`Direct`] answers on a world, [`Remote`] through a server. The guide has a
//! page about the command line.

mod app;

mod args;
mod config;
mod exit;

mod surface;

mod connect;
mod naming;
mod wait;

mod commands;
mod output;

#[cfg(test)]
mod fixtures;

pub use app::App;
pub use exit::Exit;
pub use surface::{Control, Direct, Remote, RemoteError, Surface};
