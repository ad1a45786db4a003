//! A live run's mailbox: what its worker tells it.
//!
//! Most runs never get a letter, so an empty mailbox is two words and no allocation of its own.

use std::task::Poll;

use futures_util::task::AtomicWaker;
use outlast_core::{Claimed, Message};
use parking_lot::Mutex;

/// What a live run is told by its worker.
#[derive(Debug)]
pub(super) enum Mail {
    /// A message that its inbox got.
    Message(Message),
    /// It was released and has been claimed again, before its task was done.
    Claimed(Box<Claimed>),
    /// The worker stops.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    letters: Mutex<Vec<Mail>>,
    reader: AtomicWaker,
}

impl Mailbox {
    /// Puts a letter in, and wakes the reader.
    pub(super) fn put(&self, letter: Mail) {
        self.letters.lock().push(letter);
        self.reader.wake();
    }

    /// Takes all letters, in order; empty when there are none.
    pub(super) fn take(&self) -> Vec<Mail> {
        std::mem::take(&mut *self.letters.lock())
    }

    /// Completes when there are letters. One reader at a time.
    pub(super) async fn filled(&self) {
        std::future::poll_fn(|cx| {
            self.reader.register(cx.waker());
            if self.letters.lock().is_empty() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}
