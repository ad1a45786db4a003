//! Hosts: the workers of this process, to which a start may hand its run without a claim.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::WorldError;
use crate::id::RunId;
use crate::run::{Start, Started};

/// The answer to a start that a host has taken.
pub type HostedStart = Pin<Box<dyn Future<Output = Result<Started, WorldError>> + Send>>;

/// A worker of this process that may take a run at its start.
pub trait Host: Send + Sync {
    /// Takes the run, so that its start and first turn become one commit; gives the start back when
    /// the worker has no room, not the code, or does not serve the queue, or when the run has a priority:
    /// then it waits in line.
    #[allow(clippy::result_large_err, reason = "the start is given back, not an error to carry around")]
    fn take(&self, start: Start) -> Result<HostedStart, Start>;

    /// Whether the worker holds the run and has not begun to commit its end. Whoever is told of ends
    /// in this process then need not ask the store.
    fn holds(&self, run: RunId) -> bool;

    /// Whether the start's input is one of its workflow, and why not; `None` when the worker does not
    /// have the code.
    fn check(&self, start: &Start) -> Option<Result<(), String>>;
}

/// The workers of this process that are joined to a world.
#[derive(Default)]
pub struct Hosts(Mutex<Vec<Weak<dyn Host>>>);

impl Hosts {
    /// Adds a worker; it leaves by being dropped.
    pub fn add(&self, host: Weak<dyn Host>) {
        let mut hosts = self.0.lock();
        hosts.retain(|host| host.strong_count() > 0);
        hosts.push(host);
    }

    /// Whether a worker of this process is joined.
    pub fn any(&self) -> bool {
        self.0.lock().iter().any(|host| host.strong_count() > 0)
    }

    /// Whether one of the workers holds the run; see [`Host::holds`].
    pub fn hold(&self, run: RunId) -> bool {
        self.0.lock().iter().filter_map(Weak::upgrade).any(|host| host.holds(run))
    }

    /// Asks the first worker that has the code; see [`Host::check`].
    pub fn check(&self, start: &Start) -> Option<Result<(), String>> {
        let hosts: Vec<Arc<dyn Host>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        hosts.iter().find_map(|host| host.check(start))
    }

    /// Offers the run to each worker in turn; gives the start back when nobody takes it.
    #[allow(clippy::result_large_err, reason = "the start is given back, not an error to carry around")]
    pub fn take(&self, mut start: Start) -> Result<HostedStart, Start> {
        let hosts: Vec<Arc<dyn Host>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for host in hosts {
            match host.take(start) {
                Ok(answer) => return Ok(answer),
                Err(returned) => start = returned,
            }
        }
        Err(start)
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hosts({})", self.0.lock().len())
    }
}
