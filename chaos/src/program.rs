//! The program, on Linux.

mod cli;

mod cut;
mod kills;
mod power;
mod soak;

mod bank;
mod transfer;

mod client;
mod fleet;
mod life;
mod lookout;
mod teller;
mod upgrade;

mod audit;
mod picture;

mod notebook;
mod place;
mod report;
mod server;

use std::error::Error;
use std::process::ExitCode;

/// What the parts of this program return: any error ends it with a message.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let done = match cli::parse() {
        cli::Order::Kills(plan) => block_on(kills::run(&plan)),
        cli::Order::Cut(plan) => block_on(cut::run(&plan)),
        cli::Order::Power(plan) => block_on(power::run(&plan)),
        cli::Order::Soak(plan) => block_on(soak::run(&plan)),
        cli::Order::Worker(orders) => block_on(life::live(&orders)),
        cli::Order::Client(orders) => block_on(client::serve(&orders)),
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
