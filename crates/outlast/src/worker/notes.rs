//! A live run's notes: what its worker tells it.
//!
//! Most runs never get a note, so none are two words and no allocation.

use std::task::Poll;

use futures_util::task::AtomicWaker;
use outlast_core::{Claimed, Message};
use parking_lot::Mutex;

/// What a live run is told by its worker.
#[derive(Debug)]
pub(super) enum Note {
    /// A message that its inbox got.
    Message(Message),
    /// It was released and has been claimed again, before its task was done.
    Claimed(Box<Claimed>),
    /// The worker stops.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Mutex<Vec<Note>>,
    reader: AtomicWaker,
}

impl Notes {
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
