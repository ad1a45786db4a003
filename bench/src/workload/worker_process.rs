//! A worker process for the workflow `count`, for workloads whose client is in another process.

use super::child_process::{ChildProcess, ready};
use super::count_workflow::worker;
use crate::Result;
use crate::environment::block_on;

/// The hidden subcommand that works.
pub(crate) const COMMAND: &str = "worker-child";

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerArgs {
    /// The URL of the world.
    url: String,
}

/// Works until its input ends, and prints how many attempts it started and how many sessions it lost.
pub(crate) fn child(options: &WorkerArgs) -> Result<()> {
    block_on(async {
        let worker = worker(&outlast::open(&options.url).await?).await?;
        ready().await?;
        let metrics = worker.metrics();
        worker.stop().await?;
        println!("{} {}", metrics.attempts_started, metrics.sessions_lost);
        Ok(())
    })
}

/// A worker process.
#[derive(Debug)]
pub(super) struct WorkerProcess(ChildProcess);

/// The counters of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttemptCounts {
    /// Attempts that it started.
    pub(super) attempts: u64,
    /// Sessions that it lost.
    pub(super) sessions_lost: u64,
}

impl WorkerProcess {
    /// Starts one, and waits until its worker has joined.
    pub(super) fn start(url: &str) -> Result<Self> {
        Ok(Self(ChildProcess::start(&[COMMAND, url])?))
    }

    /// Lets the worker stop, and waits for its end.
    pub(super) fn stop(mut self) -> Result<AttemptCounts> {
        let output = self.0.last_line()?;
        let numbers = output.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [attempts, sessions_lost] = numbers[..] else {
            return Err(
                format!("the process of a worker did not stop cleanly; its output is `{output}`").into()
            );
        };
        Ok(AttemptCounts { attempts, sessions_lost })
    }
}
