//! The benchmark program of Outlast: measures the engine, and compares it with the raw limits of the disk.
//!
//! Every figure that depends on the disk is compared with a raw limit that was measured in the same place just before;
//! the result is the median of the rounds' ratios. A missed target is not an error.

mod baseline;
mod cli;
mod rounds;

mod environment;
mod raw;
mod server;
mod workload;

mod report;

mod machine;
mod stats;
mod stopwatch;

use std::error::Error;
use std::process::ExitCode;

/// A fast allocator, as a program built for speed would use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The result of all parts of this program: any error ends it with a message.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let (options, child) = cli::parse();
    let done = match child {
        Some(cli::Child::IdleWaiters(options)) => workload::idle_waiters_child(&options),
        Some(cli::Child::B14(options)) => workload::live_streams_child(&options),
        Some(cli::Child::Bd) => workload::dev_start_child(),
        Some(cli::Child::B6(options)) => workload::sleeping_runs_child(&options),
        Some(cli::Child::B6m(options)) => workload::restart_child(&options),
        Some(cli::Child::B7(child)) => workload::recovery_child(&child),
        Some(cli::Child::Bm) => workload::engine_cpu_child(),
        Some(cli::Child::Bs(child)) => workload::sender_child(&child),
        Some(cli::Child::Bst(child)) => workload::stream_reader_child(&child),
        Some(cli::Child::Bw(options)) => workload::server_cost_child(&options),
        Some(cli::Child::Worker(options)) => workload::worker_child(&options),
        None => rounds::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
