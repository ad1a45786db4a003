//! Whom a change is told to: the workers and waiters of this process, and other processes.

use std::sync::Arc;

use outlast_core::{Bell, Ended, Hosts, RunId, Waiters};

use crate::side::Side;

/// What a change may mean for others.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Something may have become ready.
    pub(crate) rings: bool,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
}

/// Those of this process who hear of changes.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) bell: Arc<Bell>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) hosts: Arc<Hosts>,
}

impl Told {
    /// Tells of a change that this process made.
    pub(crate) fn tell(&self, news: News, side: Option<&Side>) {
        if news.rings {
            self.bell.ring();
        }
        if let Some(side) = side {
            side.notify(news.rings, news.ended.iter().map(|ended| ended.run));
        }
        for ended in news.ended {
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }

    /// The runs that somebody waits for and that no worker of this process holds.
    pub(crate) fn awaited(&self) -> Vec<RunId> {
        let mut runs = self.waiters.runs();
        runs.retain(|run| !self.hosts.hold(*run));
        runs
    }
}
