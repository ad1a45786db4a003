//! A live run's notes: what its worker tells it.
//!
//! Most runs never get a note, so none are two words and no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use outlast_core::{Message, Start, Started, WorldError};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::histories::Given;
use super::outcomes::Outcomes;
use crate::clock::monotonic;

/// What a live run is told by its worker.
#[derive(Debug)]
pub(super) enum Note {
    /// A message that its inbox got.
    Message(Message),
    /// It was released and has been claimed again, before its task was done.
    Claimed(Box<Given>),
    /// The worker stops.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Mutex<Vec<Note>>,
    reader: AtomicWaker,
    /// When the turn that is being computed began, in microseconds of [`monotonic`]; 0 when none is.
    began: AtomicU64,
    /// What the run starts with, while its first turn is being computed.
    first: Mutex<Option<Box<First>>>,
    /// Outcomes of its attempts that no turn has committed, for when its turn does not come back.
    pub(super) outcomes: Outcomes,
}

/// A start that has not been committed yet, and who waits for its answer.
#[derive(Debug)]
pub(super) struct First {
    pub(super) start: Arc<Start>,
    pub(super) answer: oneshot::Sender<Result<Started, WorldError>>,
}

/// A turn that is being computed, until this is dropped.
pub(super) struct Computing(Arc<Notes>);

impl Drop for Computing {
    fn drop(&mut self) {
        self.0.began.store(0, Ordering::Release);
    }
}

impl Notes {
    /// A turn is being computed until the returned value is dropped.
    pub(super) fn compute(self: &Arc<Self>) -> Computing {
        let now = u64::try_from(monotonic().as_micros()).unwrap_or(u64::MAX).max(1);
        self.began.store(now, Ordering::Release);
        Computing(self.clone())
    }

    /// How long a turn has been computed, if one is.
    pub(super) fn computing_for(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Acquire);
        (began > 0).then(|| monotonic().saturating_sub(Duration::from_micros(began)))
    }

    /// The first turn is about to be computed.
    pub(super) fn put_first(&self, first: First) {
        *self.first.lock() = Some(Box::new(first));
    }

    /// The first turn was computed, or is given up; nothing when the other came before.
    pub(super) fn take_first(&self) -> Option<Box<First>> {
        self.first.lock().take()
    }

    /// Puts a note in, and wakes the reader.
    pub(super) fn put(&self, note: Note) {
        self.kept.lock().push(note);
        self.reader.wake();
    }

    /// Takes all notes, in order.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut *self.kept.lock())
    }

    /// Completes when there are notes. One reader at a time.
    pub(super) async fn filled(&self) {
        std::future::poll_fn(|cx| {
            self.reader.register(cx.waker());
            if self.kept.lock().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}
