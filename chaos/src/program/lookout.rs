//! A worker without work that looks for the dead all the time: whoever seems dead for a moment is robbed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast::core::event::{FORMAT, RULES};
use outlast::core::queue::default_queues;
use outlast::core::{Join, Report, SessionId, World, WorldError};
use tokio::task::JoinHandle;

use super::Result;
use super::transfer::pass;

/// How often it looks.
const GLANCE: Duration = Duration::from_millis(5);

/// So long that no restart ends it.
const SESSION: Duration = Duration::from_secs(600);

/// The lookout, until it is told to stop.
#[derive(Debug)]
pub(crate) struct Lookout {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<Result<(), WorldError>>,
}

impl Lookout {
    /// Joins the world and begins to look.
    pub(crate) async fn begin(url: &str) -> Result<Self> {
        let world = outlast::open(url).await?;
        let session = SessionId::from_bits(u128::from(std::process::id()));
        let (code, queues, time) = (Arc::new([]), default_queues(), SESSION);
        let (host, build) = ("here".into(), "lookout".into());
        let (pid, rules, format) = (std::process::id(), RULES, FORMAT);
        world.join(Join { session, host, pid, build, code, queues, time, rules, format }).await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(look(world, session, is_over.clone()));
        Ok(Self { is_over, task })
    }

    /// Leaves the world.
    pub(crate) async fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok(self.task.await??)
    }
}

async fn look(world: Arc<dyn World>, session: SessionId, is_over: Arc<AtomicBool>) -> Result<(), WorldError> {
    while !is_over.load(Ordering::Relaxed) {
        let looked = match world.takeover(session).await {
            Ok(_) => world.beat(session, &Report::default(), &[]).await.map(drop),
            Err(error) => Err(error),
        };
        match looked {
            Err(error) if !error.is_transient() => return Err(error),
            _ => pass(GLANCE).await,
        }
    }
    world.leave(session).await
}
