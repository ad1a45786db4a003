//! A session without work that calls `takeover` all the time, to find sessions that seem dead for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::default_queues;
use outlast::core::{Join, Report, SessionId, World, WorldError};
use tokio::task::JoinHandle;

use super::Result;
use super::transfer::sleep;

/// The interval between two takeovers.
const SCAN_INTERVAL: Duration = Duration::from_millis(5);

/// Longer than any restart.
const SESSION: Duration = Duration::from_secs(600);

/// The scanner, until it is stopped.
#[derive(Debug)]
pub(crate) struct TakeoverScanner {
    is_stopped: Arc<AtomicBool>,
    task: JoinHandle<Result<(), WorldError>>,
}

impl TakeoverScanner {
    /// Joins the world and starts to scan.
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let world = outlast::open(url).await?;
        let session = SessionId::from_bits(u128::from(std::process::id()));
        let (code, queues, time) = (Arc::new([]), default_queues(), SESSION);
        let (host, build) = ("here".into(), "takeover-scanner".into());
        let (pid, rules, format) = (std::process::id(), RULES, FORMAT);
        world.join(Join { session, host, pid, build, code, queues, time, rules, format }).await?;
        let is_stopped = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(scan(world, session, is_stopped.clone()));
        Ok(Self { is_stopped, task })
    }

    /// Leaves the world.
    pub(crate) async fn stop(self) -> Result<()> {
        self.is_stopped.store(true, Ordering::Relaxed);
        Ok(self.task.await??)
    }
}

async fn scan(
    world: Arc<dyn World>,
    session: SessionId,
    is_stopped: Arc<AtomicBool>,
) -> Result<(), WorldError> {
    while !is_stopped.load(Ordering::Relaxed) {
        let result = match world.takeover(session).await {
            Ok(_) => world.beat(session, &Report::default(), &[]).await.map(drop),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if !error.is_transient() => return Err(error),
            _ => sleep(SCAN_INTERVAL).await,
        }
    }
    world.leave(session).await
}
