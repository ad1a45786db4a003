//! The benchmark program of Outlast: what the engine does, next to what the disk allows.
//!
//! Every figure that depends on the disk is compared with a raw limit measured in the same place a
//! moment before, and what counts is the median of the rounds' ratios. A missed target is not an
//! error: this program measures.

mod against;
mod cli;
mod rounds;

mod env;
mod raw;
mod server;
mod workload;

mod report;

mod machine;
mod stats;
mod stopwatch;

use std::error::Error;
use std::process::ExitCode;

/// The allocator that a program built for speed would choose.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the parts of this program return: any error ends it with a message.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let (plan, child) = cli::parse();
    let done = match child {
        Some(cli::Child::B6(plan)) => workload::b6_child(&plan),
        Some(cli::Child::B6m(plan)) => workload::b6m_child(&plan),
        Some(cli::Child::B7(child)) => workload::b7_child(&child),
        Some(cli::Child::Bm) => workload::bm_child(),
        Some(cli::Child::Bs(child)) => workload::bs_child(&child),
        Some(cli::Child::Bw(plan)) => workload::bw_child(&plan),
        Some(cli::Child::Worker(plan)) => workload::worker_child(&plan),
        None => rounds::run(&plan),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
