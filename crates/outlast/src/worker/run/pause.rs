//! A paused run: its holder begins no attempt, lets the running ones end, stores their outcomes in the run's own inbox,
//! and releases the run.
//!
//! Nothing is delivered while a run is paused, and no message is consumed: the message that paused the run stays
//! unread, and so does everything behind it. The holder knows from the unread messages whether the run is paused, and
//! the run's row, by its mark, when it is ready. After the pause the outcomes, messages and timers are delivered in the
//! order of their times, as after any other wait, so replay needs no rule for it.
//!
//! A step that is attempted at most once is an exception: once it is announced, this worker attempts it, because
//! another one could not know whether it was attempted.

use std::collections::BTreeSet;

use outlast_core::{OpNumber, Timestamp};

use super::exit::Exit;
use super::fact::{Fact, FactKind};
use super::live_run::LiveRun;

impl LiveRun<'_> {
    /// Whether the run is paused. A run that was asked to stop is not, nor is one that ends after its compensations, nor one
    /// whose deadline has passed. A run that begins again is paused like any other, also while the compensations of its
    /// failed try run.
    pub(super) fn is_paused(&self) -> bool {
        self.has_unread_pause
            && !self.machine.is_cancelled()
            && !self.machine.is_ending()
            && self.deadline_in_row().is_none_or(|deadline| deadline > self.task.session.clock.now())
    }

    /// The deadline in the row of the run, which makes a paused run ready. The machine has none after its workflow has
    /// returned, even if that is not recorded yet.
    fn deadline_in_row(&self) -> Option<Timestamp> {
        self.position.columns.deadline
    }

    /// Waits until no attempt of the paused run is running; then the run exits. If the pause ends earlier, returns the
    /// facts for the next turn. `facts` were not delivered.
    pub(super) async fn wait_while_paused(&mut self, facts: Vec<Fact>) -> Result<Vec<Fact>, Exit> {
        let outcomes = facts.into_iter().filter(|fact| {
            // Messages and timers are read again.
            matches!(fact.kind, FactKind::Attempt(_) | FactKind::RecoveredOutcome(_))
        });
        self.arrived_during_commit.extend(outcomes);
        self.start_attempts()?;
        self.withhold_attempts();
        while !self.attempts.is_empty() {
            self.wait_for_change().await;
            if !self.is_paused() {
                return self.facts_after_replay(Vec::new(), self.position.at, 0).await;
            }
        }
        Err(Exit::Paused)
    }

    /// Prevents attempts that have not begun, except those at steps that are attempted at most once.
    fn withhold_attempts(&mut self) {
        let once: BTreeSet<OpNumber> = self.attempts.at_most_once();
        for (op, is_maybe_attempted) in self.attempts.prevent(&once) {
            if is_maybe_attempted {
                self.maybe_attempted.insert(op);
            }
        }
    }

    /// Waits for the end of an attempt, a message or the deadline.
    async fn wait_for_change(&mut self) {
        let (clock, deadline) = (self.task.session.clock.clone(), self.deadline_in_row());
        let timer = async {
            match deadline {
                Some(deadline) => drop(clock.sleep_until(deadline).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.task.mailbox.wait_for_items() => {}
            end = self.attempts.next() => self.accept_end_later(end),
            () = timer => {}
        }
        let mut not_delivered = Vec::new();
        for item in self.task.mailbox.take() {
            self.accept_item(item, &mut not_delivered);
        }
    }
}
