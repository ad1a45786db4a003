//! The live runs of a session: those that it holds and that a task of this process works on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use outlast_core::{Claimed, Message, RunId, RunMap, Start, Started, SuspectRoom, Timestamp, WorldError};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::crash_classes::CrashClasses;
use super::missing_histories::ClaimedRun;
use super::{Session, stuck_on_panic};
use crate::worker::run::mailbox::{Mailbox, MailboxItem};
use crate::worker::run::task::RunTask;

/// The live runs of a session, and the capacity that is left.
#[derive(Debug, Default)]
pub(super) struct LiveRuns {
    by_run: RunMap<LiveRunEntry>,
    /// The number of runs that were added, including those that are gone.
    added: u64,
    classes: CrashClasses,
    /// The number of runs that a claim in progress may return.
    reserved_for_claim: usize,
}

#[derive(Debug)]
struct LiveRunEntry {
    mailbox: Arc<Mailbox>,
    task: Option<AbortHandle>,
    /// The number of crashes that count against the run.
    crashes: u32,
    /// Whether the end of the run is being committed.
    is_ending: bool,
}

impl LiveRuns {
    fn remove(&mut self, run: RunId) {
        if let Some(entry) = self.by_run.remove(&run) {
            self.classes.remove(run, entry.crashes);
        }
    }

    fn set_crashes(&mut self, run: RunId, crashes: u32) {
        if let Some(entry) = self.by_run.get_mut(&run) {
            let before = std::mem::replace(&mut entry.crashes, crashes);
            self.classes.change(run, before, crashes);
        }
    }

    /// The entries in the order of their run ids, so that a simulation is reproducible.
    fn in_order(&self) -> impl Iterator<Item = &LiveRunEntry> {
        let mut runs: Vec<_> = self.by_run.iter().collect();
        runs.sort_unstable_by_key(|(run, _)| **run);
        runs.into_iter().map(|(_, entry)| entry)
    }
}

impl Session {
    /// The number of runs that may become live in addition.
    pub(in crate::worker) fn free_capacity(&self) -> usize {
        self.settings.live_max.saturating_sub(self.live_count())
    }

    /// Reserves capacity for a claim, so that starts do not use it in the meantime. Returns the reserved number of
    /// runs.
    pub(in crate::worker) fn reserve_for_claim(&self, limit: usize) -> usize {
        let mut live = self.live.lock();
        live.reserved_for_claim = self.settings.live_max.saturating_sub(live.by_run.len()).min(limit);
        live.reserved_for_claim
    }

    /// Ends the reservation: the runs that the claim returned are live.
    pub(in crate::worker) fn end_reservation(&self) {
        self.live.lock().reserved_for_claim = 0;
    }

    pub(in crate::worker) fn live_count(&self) -> usize {
        self.live.lock().by_run.len()
    }

    /// The number of runs that have been live in this session so far.
    pub(super) fn added_count(&self) -> u64 {
        self.live.lock().added
    }

    pub(in crate::worker) fn is_live(&self, run: RunId) -> bool {
        self.live.lock().by_run.contains_key(&run)
    }

    /// Whether the run is live and the commit of its end has not begun.
    pub(in crate::worker) fn holds(&self, run: RunId) -> bool {
        self.live.lock().by_run.get(&run).is_some_and(|entry| !entry.is_ending)
    }

    /// Records that the commit of the run's end is about to begin.
    pub(in crate::worker) fn set_ending(&self, run: RunId) {
        if let Some(entry) = self.live.lock().by_run.get_mut(&run) {
            entry.is_ending = true;
        }
    }

    /// Which suspects the next claim may return.
    pub(in crate::worker) fn suspect_room(&self) -> SuspectRoom {
        self.live.lock().classes.room(self.settings.live_max)
    }

    /// The time until which nothing is claimed, because a run is on trial.
    pub(in crate::worker) fn trial_until(&self) -> Option<Timestamp> {
        self.live.lock().classes.trial_until(self.clock.now())
    }

    /// Records that a claim returned these runs.
    pub(in crate::worker) fn claim_returned(&self, claimed: &[Claimed]) {
        self.live.lock().classes.claim_returned(claimed, self.clock.now());
    }

    /// Continues a claimed run in a task of its own.
    pub(in crate::worker) fn continue_claimed(self: &Arc<Self>, claimed: ClaimedRun) {
        let (run, crashes) = (claimed.claimed.run, claimed.claimed.columns.crashes);
        let mut live = self.live.lock();
        if let Some(entry) = live.by_run.get(&run) {
            // The task of the run has released it and is about to end: it continues with this claim instead.
            entry.mailbox.put(MailboxItem::Claimed(Box::new(claimed)));
            return;
        }
        let mailbox = self.add_entry(&mut live, run, crashes);
        drop(live);
        self.spawn(run, mailbox, |task| task.run_claimed(claimed));
    }

    /// Takes a run at its start, without a claim. Returns the start if this worker has no capacity, does not have the
    /// code, or does not serve the queue, and if the run has a priority: then the order of claims decides.
    #[allow(clippy::result_large_err, reason = "the start is given back, not an error to carry around")]
    pub(in crate::worker) fn take_start(
        self: &Arc<Self>,
        mut start: Start,
    ) -> Result<oneshot::Receiver<Result<Started, WorldError>>, Start> {
        let has_code = self.settings.code.workflow(&start.workflow, start.version).is_some();
        let is_accepted = has_code && start.priority == 0 && self.settings.queues.contains(&start.queue);
        if !is_accepted || self.stopping.is_cancelled() || self.lost.is_cancelled() {
            return Err(start);
        }
        let mut live = self.live.lock();
        let is_live = live.by_run.contains_key(&start.run);
        let has_capacity = live.by_run.len() + live.reserved_for_claim < self.settings.live_max;
        if is_live || !has_capacity || !live.classes.takes_starts(|| self.clock.now()) {
            return Err(start);
        }
        start.rules = start.rules.min(self.rules.load(Ordering::Acquire));
        let (answer, answered) = oneshot::channel();
        let run = start.run;
        let mailbox = self.add_entry(&mut live, run, 0);
        drop(live);
        self.spawn(run, mailbox, |task| task.run_start(Arc::new(start), answer));
        Ok(answered)
    }

    /// Adds the entry of a run whose task is about to be spawned.
    fn add_entry(&self, live: &mut LiveRuns, run: RunId, crashes: u32) -> Arc<Mailbox> {
        let mailbox = Arc::<Mailbox>::default();
        let entry = LiveRunEntry { mailbox: mailbox.clone(), task: None, crashes, is_ending: false };
        live.classes.add(crashes);
        live.by_run.insert(run, entry);
        live.added += 1;
        mailbox
    }

    /// Spawns the task of an entry. The lock of the entries must not be held: a runtime that shuts down drops the task
    /// at once, and the task then removes its entry.
    fn spawn<F>(self: &Arc<Self>, run: RunId, mailbox: Arc<Mailbox>, work: impl FnOnce(RunTask) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = RunTask { session: self.clone(), run, mailbox: mailbox.clone(), _busy: self.busy() };
        let task = self.runtime.spawn(stuck_on_panic(self.clone(), run, work(task))).abort_handle();
        let mut live = self.live.lock();
        match live.by_run.get_mut(&run).filter(|entry| Arc::ptr_eq(&entry.mailbox, &mailbox)) {
            Some(entry) => entry.task = Some(task),
            // The task has ended, or all tasks were aborted since the entry was added.
            None => task.abort(),
        }
    }

    /// Passes messages to a live run.
    pub(in crate::worker) fn pass_messages(&self, run: RunId, messages: Vec<Message>) {
        if let Some(entry) = self.live.lock().by_run.get(&run) {
            for message in messages {
                entry.mailbox.put(MailboxItem::Message(message));
            }
        }
    }

    /// Removes a run that its task has released or ended, unless it was claimed again in the meantime: then returns
    /// the claim. `on_removed` is called under the lock.
    pub(in crate::worker) fn remove_unless_claimed_again(
        &self,
        run: RunId,
        mailbox: &Mailbox,
        on_removed: impl FnOnce(),
    ) -> Option<Box<ClaimedRun>> {
        let mut live = self.live.lock();
        if let Some(claimed) = mailbox.take_claim() {
            live.set_crashes(run, claimed.claimed.columns.crashes);
            return Some(claimed);
        }
        live.remove(run);
        on_removed();
        drop(live);
        self.capacity_freed.notify();
        None
    }

    /// Removes the entry of a task that has ended in any way, if it is still there.
    pub(in crate::worker) fn remove_entry(&self, run: RunId, mailbox: &Arc<Mailbox>) {
        let mut live = self.live.lock();
        if live.by_run.get(&run).is_some_and(|entry| Arc::ptr_eq(&entry.mailbox, mailbox)) {
            live.remove(run);
            drop(live);
            self.capacity_freed.notify();
        }
    }

    /// Sets the number of crashes that count against a run after it has committed.
    pub(in crate::worker) fn set_crashes(&self, run: RunId, crashes: u32) {
        self.live.lock().set_crashes(run, crashes);
        self.capacity_freed.notify();
    }

    /// The runs whose current turn has been computing for longer than `limit`.
    pub(in crate::worker) fn computing_longer_than(&self, limit: Duration) -> Vec<(RunId, Arc<Mailbox>)> {
        let live = self.live.lock();
        let hung = live.by_run.iter().filter(|(_, entry)| entry.mailbox.computing_for() > Some(limit));
        hung.map(|(run, entry)| (*run, entry.mailbox.clone())).collect()
    }

    /// Asks every live run to stop at the next opportunity, because the worker stops.
    pub(in crate::worker) fn ask_runs_to_stop(&self) {
        let live = self.live.lock();
        for entry in live.in_order() {
            entry.mailbox.put(MailboxItem::Stop);
        }
    }

    /// Aborts the tasks of all live runs and removes their entries.
    pub(super) fn abort_tasks(&self) {
        let live = std::mem::take(&mut *self.live.lock());
        for entry in live.in_order() {
            if let Some(task) = &entry.task {
                task.abort();
            }
        }
    }
}
