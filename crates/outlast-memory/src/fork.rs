//! Forks: new runs with the events of others.

use outlast_core::refusal::{no_run, not_forkable};
use outlast_core::{Fork, RowChange, Started, Timestamp, TurnRecord, WorldError};

use crate::state::{Notifications, State};

impl State {
    /// Starts a run with the events of another one. Repeating it returns the same answer.
    pub(crate) fn fork(
        &mut self,
        fork: Fork,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Started, WorldError> {
        let id = fork.start.run;
        let started = Started { run: id, is_new: true };
        if self.runs.contains_key(&id) {
            return Ok(started);
        }
        let RowChange { turn, turn_at, next_event, columns, format, .. } = fork.row(now)?;
        let of = self.get(fork.origin.of)?;
        let is_copied = |turn: &&TurnRecord| fork.ranges.iter().any(|range| range.contains(&turn.seq));
        let mut turns: Vec<TurnRecord> = of.history.iter().filter(is_copied).cloned().collect();
        if turns.len() as u64 != fork.copied {
            return Err(not_forkable(fork.origin.of));
        }
        let format = format.max(of.format);
        turns.extend(fork.rewritten);
        turns.sort_by_key(|turn| turn.seq);
        let first = fork.start.first_turn(now);
        self.insert(fork.start, first, now);
        let run = self.runs.get_mut(&id).ok_or_else(|| no_run(id))?;
        (run.history, run.seq, run.turn, run.turn_at) = (turns, next_event, turn, turn_at);
        (run.columns, run.format) = (columns, format);
        for message in fork.messages {
            run.format = run.format.max(message.body.format());
            run.accept(message.id, message.body, message.headers, now);
        }
        let begin = run.wake_at.unwrap_or(now);
        self.set_ready_at(id, Some(begin), now, notifications);
        notifications.wakes_workers = true;
        Ok(started)
    }
}
