//! Starts: one run per id, one run per key.

use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{Start, Started, Status, Timestamp, TurnRecord, WorldError};

use crate::run::Run;
use crate::state::{Effects, State};

impl State {
    pub(crate) fn start(
        &mut self,
        mut start: Start,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Started, WorldError> {
        start.rules = self.rules.map_or(start.rules, |lowest| lowest.min(start.rules));
        if let Some(existed) = self.started_before(&start, now)? {
            return Ok(existed);
        }
        let (id, first) = (start.run, start.first_turn(now));
        self.insert(start, first, now);
        let begin = self.get(id)?.wake_at.unwrap_or(now);
        self.line_up(id, Some(begin), now, effects);
        Ok(Started { run: id, is_new: true })
    }

    /// The run that an earlier start with this id or key began; refuses what may not start.
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
        let asks_for_the_same = existing.code.workflow == start.workflow
            && existing.key.as_ref().is_some_and(|existing| existing.digest == key.digest);
        if asks_for_the_same {
            Ok(Some(Started { run, is_new: false }))
        } else {
            Err(key_taken(start, run, &existing.code.workflow))
        }
    }

    /// Adds a run that nobody holds and that is in no line yet.
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
