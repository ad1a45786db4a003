//! Starts: one run per id, one run per key.

use outlast_core::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use outlast_core::{RunId, Start, Started, Status, Timestamp, TurnRecord, WorldError};

use crate::run::Run;
use crate::state::{Effects, State};

impl State {
    pub(crate) fn start(
        &mut self,
        start: Start,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Started, WorldError> {
        if let Some(existed) = self.started_before(&start)? {
            return Ok(existed);
        }
        let (id, first) = (start.run, start.first_turn(now));
        self.insert(start, first, now);
        self.line_up(id, Some(now), now, effects);
        Ok(Started { run: id, is_new: true })
    }

    /// The run that an earlier start with this id or key began; refuses what may not start.
    pub(crate) fn started_before(&self, start: &Start) -> Result<Option<Started>, WorldError> {
        check_limits(start)?;
        if self.runs.contains_key(&start.run) {
            return Ok(Some(Started { run: start.run, is_new: true }));
        }
        let Some(key) = &start.key else { return Ok(None) };
        let Some(&run) = self.keys.get(&key.text) else { return Ok(None) };
        let existing = self.get(run)?;
        let asks_for_the_same = existing.code.workflow == start.workflow
            && existing.key.as_ref().is_some_and(|existing| existing.digest == key.digest);
        if asks_for_the_same {
            Ok(Some(Started { run, is_new: false }))
        } else {
            Err(key_conflict(run, existing))
        }
    }

    /// Adds a run that nobody holds and that is in no line yet.
    pub(crate) fn insert(&mut self, start: Start, first: TurnRecord, now: Timestamp) {
        let id = start.run;
        if let Some(key) = &start.key {
            self.keys.insert(key.text.clone(), id);
        }
        self.runs.insert(id, Box::new(Run::new(start, first, now)));
        self.order.insert(id);
        *self.counts.entry(Status::Pending).or_default() += 1;
    }
}

fn check_limits(start: &Start) -> Result<(), WorldError> {
    let name = start.workflow.len();
    if name > NAME_BYTES_MAX {
        return Err(WorldError::Limit(format!(
            "the workflow's name has {name} bytes, the limit is {NAME_BYTES_MAX}; give it a shorter one"
        )));
    }
    let key = start.key.as_ref().map_or(0, |key| key.text.len());
    if key > KEY_BYTES_MAX {
        return Err(WorldError::Limit(format!(
            "the key has {key} bytes, the limit is {KEY_BYTES_MAX}; use a shorter one, such as a hash"
        )));
    }
    Ok(())
}

fn key_conflict(run: RunId, existing: &Run) -> WorldError {
    let key = existing.key.as_ref().map_or("", |key| &key.text);
    WorldError::Conflict(format!(
        "key `{key}` names run {run} of workflow `{}`, which was started with another workflow or input; \
         use another key",
        existing.code.workflow
    ))
}
