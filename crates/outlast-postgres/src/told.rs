//! Whom a change is told to: the workers and waiters of this process, and other processes.

use std::sync::Arc;

use outlast_core::{ChangeSignal, Ended, RunId, Waiters};

use crate::looks::Rings;
use crate::voice::Voice;
use crate::young::Young;

/// What a change may mean for others.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Something may have become ready.
    pub(crate) rings: bool,
    /// This run was started, and may be claimed at once.
    pub(crate) started: Option<RunId>,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
}

/// Those who hear of changes.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) change_signal: Arc<ChangeSignal>,
    pub(crate) rings: Arc<Rings>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) young: Arc<Young>,
    /// To other processes.
    pub(crate) voice: Voice,
}

impl Told {
    /// Tells of a change that this process made.
    pub(crate) fn tell(&self, news: News) {
        if news.rings {
            self.ring_here(None);
        } else if news.started.is_some() {
            self.ring_here(news.started);
        }
        self.voice.notify(news.rings, news.started, news.ended.iter().map(|ended| ended.run));
        for ended in news.ended {
            self.young.remove(ended.run);
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }

    /// Tells that something may have become ready.
    pub(crate) fn ring(&self) {
        self.tell(News { rings: true, ..News::default() });
    }

    /// Tells the workers of this process alone that something may have become ready: this run, or whatever else.
    pub(crate) fn ring_here(&self, started: Option<RunId>) {
        // Before it rings: who hears it sees what for.
        self.rings.note(started);
        self.change_signal.notify();
    }

    /// The runs that somebody waits for.
    pub(crate) fn awaited(&self) -> Vec<RunId> {
        self.waiters.runs()
    }
}
