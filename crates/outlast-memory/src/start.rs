//! Starts: at most one run per id and per key.

use outlast_core::refusal::{check_first_message, check_start, key_taken};
use outlast_core::{KeyPolicy, NewMessage, Sent, Start, Started, Status, Timestamp, TurnRecord, WorldError};

use crate::run::Run;
use crate::state::{Notifications, State};

impl State {
    pub(crate) fn start(
        &mut self,
        mut start: Start,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Started, WorldError> {
        start.rules = self.rules.map_or(start.rules, |lowest| lowest.min(start.rules));
        if let Some(existed) = self.started_before(&start, now)? {
            return Ok(existed);
        }
        let (id, first) = (start.run, start.first_turn(now));
        self.cancel_replaced(&start, now, notifications);
        self.insert(start, first, now);
        let begin = self.get(id)?.wake_at.unwrap_or(now);
        self.set_ready_at(id, Some(begin), now, notifications);
        Ok(Started { run: id, is_new: true })
    }

    /// Starts a run, or finds the one that the key names, and sends it a message.
    pub(crate) fn start_and_send(
        &mut self,
        start: Start,
        mut message: NewMessage,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<(Started, Sent), WorldError> {
        check_first_message(&message)?;
        let existing = self.started_before(&start, now)?;
        message.run = existing.map_or(start.run, |existing| existing.run);
        if existing.is_none() {
            self.start(start, now, notifications)?;
        }
        let started = existing.unwrap_or(Started { run: message.run, is_new: true });
        Ok((started, self.send_by_client(message, now, notifications)?))
    }

    /// The run that an earlier start with this id or key created, if any. Refuses an invalid start.
    pub(crate) fn started_before(
        &self,
        start: &Start,
        now: Timestamp,
    ) -> Result<Option<Started>, WorldError> {
        check_start(start)?;
        if self.runs.contains_key(&start.run) {
            return Ok(Some(Started { run: start.run, is_new: true }));
        }
        let Some(key) = &start.key else { return Ok(None) };
        let Some(&run) = self.keys.get(&key.text) else { return Ok(None) };
        let existing = self.get(run)?;
        if key.window.is_some_and(|window| existing.created_at.plus(window) <= now) {
            return Ok(None);
        }
        if start.replaces() || key.policy == KeyPolicy::WhileRunning && existing.status.is_final() {
            return Ok(None);
        }
        let is_same_start = existing.code.workflow == start.workflow
            && existing.key.as_ref().is_some_and(|existing| existing.digest == key.digest);
        if is_same_start {
            Ok(Some(Started { run, is_new: false }))
        } else {
            Err(key_taken(start, run, &existing.code.workflow))
        }
    }

    /// Asks the run to stop from which a start takes the key.
    pub(crate) fn cancel_replaced(
        &mut self,
        start: &Start,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        let key = start.key.as_ref().filter(|_| start.replaces());
        let Some(&replaced) = key.and_then(|key| self.keys.get(&key.text)) else { return };
        // A run that has ended takes no message.
        let _ = self.send(start.cancel_of_replaced(replaced), now, notifications);
    }

    /// Adds a run that no session holds and that is not in the ready queues yet.
    pub(crate) fn insert(&mut self, start: Start, first: TurnRecord, now: Timestamp) {
        let id = start.run;
        let earlier = start.key.as_ref().and_then(|key| self.keys.insert(key.text.clone(), id));
        if let Some(earlier) = earlier.and_then(|earlier| self.runs.get_mut(&earlier)) {
            earlier.key = None;
        }
        self.runs.insert(id, Box::new(Run::new(start, first, now)));
        self.order.insert(id);
        *self.counts.entry(Status::Pending).or_default() += 1;
    }
}
