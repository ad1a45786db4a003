//! The program, on Linux.

mod cli;

mod cut;
mod kills;
mod power;
mod soak;

mod bank;
mod booking;
mod newest_format;
mod transfer;

mod client_process;
mod load_client;
mod takeover_scanner;
mod upgrade;
mod worker_pool;
mod worker_process;

mod audit;
mod snapshot;

mod append_log;
mod report;
mod server;
mod workdir;

use std::error::Error;
use std::process::ExitCode;

/// The result of all parts of this program: any error ends it with a message.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Executes the task of the command line.
pub(crate) fn main() -> ExitCode {
    let done = match cli::parse() {
        cli::Task::Kills(options) => block_on(kills::run(&options)),
        cli::Task::Cut(options) => block_on(cut::run(&options)),
        cli::Task::Power(options) => block_on(power::run(&options)),
        cli::Task::Soak(options) => block_on(soak::run(&options)),
        cli::Task::Worker(args) => block_on(worker_process::run(&args)),
        cli::Task::Client(args) => block_on(client_process::run(&args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work)
}
