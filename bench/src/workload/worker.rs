//! A process with a worker in it that counts, for workloads whose client is in another.

use super::child::{Process, ready};
use super::counting::worker;
use crate::Result;
use crate::env::block_on;

/// The hidden subcommand that works.
pub(crate) const COMMAND: &str = "worker-child";

/// What the parent tells its child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkerPlan {
    /// Where the world is.
    url: String,
}

/// Works until its input ends, and prints how many attempts it started and how many sessions it lost.
pub(crate) fn child(plan: &WorkerPlan) -> Result<()> {
    block_on(async {
        let worker = worker(&outlast::open(&plan.url).await?).await?;
        ready().await?;
        let metrics = worker.metrics();
        worker.stop().await?;
        println!("{} {}", metrics.attempts_started, metrics.sessions_lost);
        Ok(())
    })
}

/// Such a process.
#[derive(Debug)]
pub(super) struct WorkerProcess(Process);

/// What a worker did in all its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deeds {
    /// Attempts that it started.
    pub(super) attempts: u64,
    /// Sessions that it lost.
    pub(super) sessions_lost: u64,
}

impl WorkerProcess {
    /// Starts one, and waits until its worker has joined.
    pub(super) fn start(url: &str) -> Result<Self> {
        Ok(Self(Process::start(&[COMMAND, url])?))
    }

    /// Lets the worker stop, and waits for its end.
    pub(super) fn stop(mut self) -> Result<Deeds> {
        let said = self.0.last_words()?;
        let numbers = said.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [attempts, sessions_lost] = numbers[..] else {
            return Err(format!("the process of a worker did not stop in order; it said `{said}`").into());
        };
        Ok(Deeds { attempts, sessions_lost })
    }
}
