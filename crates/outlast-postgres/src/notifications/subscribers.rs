//! The receivers of a change: the workers and waiters of this process, and other processes.

use std::sync::Arc;

use outlast_core::{ChangeSignal, Clock, Ended, RecentlyStarted, RunId, RunWatchers, Waiters};

use super::claim_hints::WakeReasons;
use super::notifier::Notifier;

/// What a change may mean for subscribers.
#[derive(Debug, Default)]
pub(crate) struct ChangeNotice {
    /// Whether any run may have become ready.
    pub(crate) has_work: bool,
    /// A run that was started and can be claimed immediately.
    pub(crate) started: Option<RunId>,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
    /// Runs whose streams or state have changed.
    pub(crate) written: Vec<RunId>,
}

/// Everything that is notified of changes.
#[derive(Clone, Debug)]
pub(crate) struct Subscribers {
    pub(crate) change_signal: Arc<ChangeSignal>,
    /// Why the change signal fired.
    pub(crate) wake_reasons: Arc<WakeReasons>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) watchers: Arc<RunWatchers>,
    pub(crate) recently_started: Arc<RecentlyStarted>,
    /// Notifies other processes.
    pub(crate) notifier: Notifier,
}

impl Subscribers {
    /// The subscribers of a world with this clock. If the clock is virtual, other processes are not notified.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            notifier: Notifier::new(clock.is_virtual()),
            change_signal: Arc::new(ChangeSignal::new(clock.clone())),
            watchers: Arc::new(RunWatchers::new(clock)),
            wake_reasons: Arc::default(),
            waiters: Arc::default(),
            recently_started: Arc::default(),
        }
    }

    /// Publishes a change that this process made.
    pub(crate) fn publish(&self, notice: ChangeNotice) {
        if notice.has_work {
            self.wake_local_workers(None);
        } else if notice.started.is_some() {
            self.wake_local_workers(notice.started);
        }
        self.notifier.notify(notice.has_work, notice.started, notice.ended.iter().map(|ended| ended.run));
        self.publish_written(&notice.written);
        for ended in notice.ended {
            self.watchers.notify(ended.run);
            self.recently_started.remove(ended.run);
            self.waiters.tell(ended.run, || Some(ended.clone()));
        }
    }

    /// Publishes that the streams or states of runs have changed.
    pub(crate) fn publish_written(&self, runs: &[RunId]) {
        runs.iter().for_each(|run| self.watchers.notify(*run));
        self.notifier.notify_written(runs);
    }

    /// Publishes that any run may have become ready.
    pub(crate) fn publish_work(&self) {
        self.publish(ChangeNotice { has_work: true, ..ChangeNotice::default() });
    }

    /// Wakes the workers of this process because of the start of one run, or because any run may have become ready.
    pub(crate) fn wake_local_workers(&self, started: Option<RunId>) {
        // Store the reason before waking workers, so that a woken worker can read it.
        self.wake_reasons.record(started);
        self.change_signal.notify();
    }

    /// The runs whose end somebody in this process waits for.
    pub(crate) fn awaited_runs(&self) -> Vec<RunId> {
        self.waiters.runs()
    }
}
