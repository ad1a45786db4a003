//! Whom a change is told to: the workers and waiters of this process, and other processes.

use std::sync::Arc;

use outlast_core::{Bell, Ended, Hosts, RunId, Waiters};

use crate::voice::Voice;
use crate::young::Young;

/// What a change may mean for others.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Something may have become ready.
    pub(crate) rings: bool,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
}

/// Those who hear of changes.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) bell: Arc<Bell>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) young: Arc<Young>,
    /// To other processes.
    pub(crate) voice: Voice,
}

impl Told {
    /// Tells of a change that this process made.
    pub(crate) fn tell(&self, news: News) {
        if news.rings {
            self.bell.ring();
        }
        self.voice.notify(news.rings, news.ended.iter().map(|ended| ended.run));
        for ended in news.ended {
            self.young.remove(ended.run);
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }

    /// Tells that something may have become ready.
    pub(crate) fn ring(&self) {
        self.tell(News { rings: true, ended: Vec::new() });
    }

    /// The runs that somebody waits for and that no worker of this process holds.
    pub(crate) fn awaited(&self) -> Vec<RunId> {
        let mut runs = self.waiters.runs();
        runs.retain(|run| !self.hosts.hold(*run));
        runs
    }
}
