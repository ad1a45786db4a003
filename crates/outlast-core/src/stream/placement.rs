//! Where new chunks go, and which of them are stored: the state machine of a stream's row.
//!
//! Memory and SQLite use these functions; the functions of Postgres do the same in SQL, and the conformance suite
//! compares them.

use crate::event::OpNumber;
use crate::id::{AttemptId, TurnId};
use crate::limits::STREAM_CHUNKS_MAX;

/// The row of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRow {
    /// The index of the first entry that it still has.
    pub first: u64,
    /// The index of the next entry.
    pub end: u64,
    /// Who closed it, if it is closed.
    pub closed_by: Option<StreamCloser>,
    /// How many entries it keeps; `None` keeps all.
    pub keep_last: Option<u64>,
    /// The number of chunks that were not stored, because they were too large or too many.
    pub dropped: u64,
    /// The number of chunks that were not stored, because the stream was closed.
    pub late: u64,
    /// The last turn whose workflow wrote to it.
    pub turn: Option<TurnId>,
}

/// Who closed a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCloser {
    /// The workflow's own code.
    Workflow,
    /// A step. If a newer attempt of it writes, the stream is open again.
    Step(OpNumber),
}

/// What a stream knows about one operation that writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterRow {
    /// The newest attempt.
    pub attempt: AttemptId,
    /// The index of the first entry that the attempt may have written.
    pub from: u64,
    /// The number of chunks that the attempt has written, stored or counted.
    pub next: u64,
}

impl WriterRow {
    /// Whether an attempt is older than the newest one. Attempts of two sessions are not compared: only the session
    /// that holds the run writes, so its attempts are the newer ones.
    pub fn is_newer_than(&self, attempt: AttemptId) -> bool {
        self.attempt.session() == attempt.session() && self.attempt.count() > attempt.count()
    }
}

/// Where new chunks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The index of the first new chunk; `None` if none is stored.
    pub index: Option<u64>,
    /// Whether the stream was closed before.
    pub is_closed: bool,
    /// The number of chunks that were too many.
    pub dropped: u64,
}

/// The entry `restarted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// Its index.
    pub index: u64,
    /// The first superseded entry.
    pub from: u64,
}

impl StreamRow {
    /// Appends the entry `restarted`, because a newer attempt of an operation writes to one of the run's streams.
    pub fn restart(&mut self, op: OpNumber, writer: &mut WriterRow, attempt: AttemptId) -> Restart {
        let restart = Restart { index: self.end, from: writer.from };
        self.end += 1;
        if self.closed_by == Some(StreamCloser::Step(op)) {
            self.closed_by = None;
        }
        *writer = WriterRow { attempt, from: self.end, next: 0 };
        self.trim();
        restart
    }

    /// Appends chunks of which `new` are not stored yet, and closes the stream if `closer` is given.
    pub fn append(&mut self, new: u64, keep_last: Option<u64>, closer: Option<StreamCloser>) -> Placement {
        if self.closed_by.is_some() {
            self.late += new;
            return Placement { index: None, is_closed: true, dropped: 0 };
        }
        self.keep_last = keep_last.or(self.keep_last);
        let kept = (self.end - self.first + new).min(self.keep_last.unwrap_or(u64::MAX));
        let mut placement = Placement { index: None, is_closed: false, dropped: 0 };
        if kept > STREAM_CHUNKS_MAX {
            self.dropped += new;
            placement.dropped = new;
        } else if new > 0 {
            placement.index = Some(self.end);
            self.end += new;
        }
        self.closed_by = closer;
        self.trim();
        placement
    }

    /// Forgets the oldest entries.
    fn trim(&mut self) {
        if let Some(keep_last) = self.keep_last {
            self.first = self.first.max(self.end.saturating_sub(keep_last));
        }
    }
}

/// The index of the first entry to read. A negative `from` counts from the end.
pub fn first_read(from: i64, first: u64, end: u64) -> u64 {
    let from = if from < 0 { end.saturating_sub(from.unsigned_abs()) } else { from.unsigned_abs() };
    from.clamp(first, end.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SessionId;

    const OP: OpNumber = OpNumber(3);

    fn attempt(session: u128, count: u64) -> AttemptId {
        AttemptId::new(SessionId::from_bits(session), count)
    }

    #[test]
    fn chunks_follow_each_other_without_gaps() {
        let mut row = StreamRow::default();
        assert_eq!(row.append(3, None, None).index, Some(0));
        assert_eq!(row.append(0, None, None).index, None);
        assert_eq!(row.append(2, None, None).index, Some(3));
        assert_eq!((row.first, row.end), (0, 5));
    }

    #[test]
    fn a_newer_attempt_supersedes_what_the_older_one_wrote() {
        let mut row = StreamRow { end: 10, ..StreamRow::default() };
        let mut writer = WriterRow { attempt: attempt(1, 1), from: 4, next: 6 };
        assert!(writer.is_newer_than(attempt(1, 0)) && !writer.is_newer_than(attempt(1, 1)));
        assert!(!writer.is_newer_than(attempt(0, 0)), "another session that holds the run");
        let restart = row.restart(OP, &mut writer, attempt(2, 0));
        assert_eq!(restart, Restart { index: 10, from: 4 });
        assert_eq!(writer, WriterRow { attempt: attempt(2, 0), from: 11, next: 0 });
        assert_eq!(row.append(1, None, None).index, Some(11));
    }

    #[test]
    fn a_closed_stream_counts_and_a_newer_attempt_of_its_closer_opens_it() {
        let mut row = StreamRow::default();
        row.append(1, None, Some(StreamCloser::Step(OP)));
        let placement = row.append(2, None, None);
        assert!(placement.is_closed && placement.index.is_none());
        assert_eq!((row.end, row.late), (1, 2));
        let mut other = WriterRow { attempt: attempt(1, 0), from: 0, next: 1 };
        row.restart(OpNumber(9), &mut other, attempt(2, 0));
        assert!(row.closed_by.is_some(), "another step closed it");
        let mut writer = WriterRow { attempt: attempt(1, 1), from: 0, next: 1 };
        row.restart(OP, &mut writer, attempt(2, 1));
        assert_eq!(row.closed_by, None);
    }

    #[test]
    fn a_stream_keeps_its_last_entries() {
        let mut row = StreamRow::default();
        row.append(10, Some(4), None);
        assert_eq!((row.first, row.end), (6, 10));
        row.append(1, None, None);
        assert_eq!((row.first, row.end), (7, 11), "the setting stays");
        row.append(STREAM_CHUNKS_MAX, None, None);
        assert_eq!(
            (row.end, row.dropped),
            (11 + STREAM_CHUNKS_MAX, 0),
            "what it does not keep is not too much"
        );
    }

    #[test]
    fn a_full_stream_counts_what_it_drops() {
        let mut row = StreamRow { end: STREAM_CHUNKS_MAX, ..StreamRow::default() };
        let placement = row.append(2, None, None);
        assert_eq!((placement.index, placement.dropped, row.dropped), (None, 2, 2));
    }

    #[test]
    fn a_negative_start_counts_from_the_end() {
        assert_eq!(first_read(0, 0, 10), 0);
        assert_eq!(first_read(-3, 0, 10), 7);
        assert_eq!(first_read(-30, 2, 10), 2);
        assert_eq!(first_read(1, 2, 10), 2);
        assert_eq!(first_read(50, 2, 10), 10);
    }
}
