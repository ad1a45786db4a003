//! A value that tasks wait for. Unlike `tokio::sync::watch` it wakes them in the order of their arrival.

use std::pin::pin;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Signal<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Signal<T> {
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(super) fn get(&self) -> T {
        *self.value.lock()
    }

    pub(super) fn set(&self, value: T) {
        *self.value.lock() = value;
        self.changed.notify_waiters();
    }

    /// Waits until the value satisfies the predicate.
    pub(super) async fn is(&self, wanted: impl Fn(T) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if wanted(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
