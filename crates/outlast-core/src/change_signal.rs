//! Notifications within one process: a change signal for workers, and the callers that wait for a run to end.
//!
//! Neither needs an async runtime: both store wakers. A notification is only a hint; the receiver always queries the
//! world.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::event::Ended;
use crate::id::RunId;
use crate::run_map::RunMap;
use crate::time::{Busy, Clock};

/// Notifies workers that a run may have become ready. Notifications are counted, so that none is lost between a query
/// and the wait that follows it.
#[derive(Debug)]
pub struct ChangeSignal {
    clock: Arc<dyn Clock>,
    state: Mutex<SignalState>,
}

#[derive(Debug, Default)]
struct SignalState {
    epoch: u64,
    listeners: Vec<Arc<Listener>>,
}

#[derive(Debug, Default)]
struct Listener(Mutex<ListenerState>);

#[derive(Debug, Default)]
struct ListenerState {
    waker: Option<Waker>,
    // Held from the notification until the listener wakes, so that a virtual clock does not advance in between.
    notified: Option<Busy>,
}

impl ChangeSignal {
    /// A change signal without notifications so far.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// The number of notifications so far.
    pub fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Wakes all listeners.
    pub fn notify(&self) {
        let listeners = {
            let mut state = self.state.lock();
            state.epoch += 1;
            std::mem::take(&mut state.listeners)
        };
        for listener in listeners {
            let mut state = listener.0.lock();
            state.notified = Some(self.clock.busy());
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Completes when the number of notifications differs from `seen`. The caller holds the returned [`Busy`] while it
    /// handles the change.
    pub fn changed_since(&self, seen: u64) -> ChangedSince<'_> {
        ChangedSince { change_signal: self, seen, listener: None }
    }
}

/// Waits for a notification; see [`ChangeSignal::changed_since`].
#[derive(Debug)]
pub struct ChangedSince<'a> {
    change_signal: &'a ChangeSignal,
    seen: u64,
    listener: Option<Arc<Listener>>,
}

impl Future for ChangedSince<'_> {
    type Output = Busy;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Busy> {
        let mut state = self.change_signal.state.lock();
        if state.epoch != self.seen {
            drop(state);
            let notified = self.listener.take().and_then(|listener| listener.0.lock().notified.take());
            return Poll::Ready(notified.unwrap_or_else(|| self.change_signal.clock.busy()));
        }
        match &self.listener {
            Some(listener) => listener.0.lock().waker = Some(cx.waker().clone()),
            None => {
                let listener = Arc::new(Listener::default());
                listener.0.lock().waker = Some(cx.waker().clone());
                state.listeners.push(listener.clone());
                drop(state);
                self.listener = Some(listener);
            }
        }
        Poll::Pending
    }
}

impl Drop for ChangedSince<'_> {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.change_signal.state.lock().listeners.retain(|other| !Arc::ptr_eq(other, &listener));
        }
    }
}

/// The callers in this process that wait for the end of a run.
#[derive(Debug, Default)]
pub struct Waiters {
    by_run: Mutex<RunMap<Vec<Arc<Waiter>>>>,
}

#[derive(Debug, Default)]
struct Waiter(Mutex<WaiterState>);

#[derive(Debug, Default)]
struct WaiterState {
    waker: Option<Waker>,
    ended: Option<Ended>,
}

impl Waiters {
    /// Registers immediately, and completes when [`Waiters::tell`] reports the end of the run.
    pub fn wait(self: &Arc<Self>, run: RunId) -> RunEnd {
        let waiter = Arc::new(Waiter::default());
        self.by_run.lock().entry(run).or_default().push(waiter.clone());
        RunEnd { waiters: self.clone(), run, waiter }
    }

    /// Whether there are no waiters.
    pub fn is_empty(&self) -> bool {
        self.by_run.lock().is_empty()
    }

    /// The runs with waiters.
    pub fn runs(&self) -> Vec<RunId> {
        self.by_run.lock().keys().copied().collect()
    }

    /// Passes the end of a run to its waiters. `ended` is called only if there are any.
    pub fn tell(&self, run: RunId, ended: impl FnOnce() -> Option<Ended>) {
        let Some(waiting) = self.by_run.lock().remove(&run) else { return };
        let Some(ended) = ended() else { return };
        for waiter in waiting {
            let mut state = waiter.0.lock();
            state.ended = Some(ended.clone());
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Waits for a run's end; see [`Waiters::wait`].
#[derive(Debug)]
pub struct RunEnd {
    waiters: Arc<Waiters>,
    run: RunId,
    waiter: Arc<Waiter>,
}

impl Future for RunEnd {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let mut state = self.waiter.0.lock();
        match state.ended.take() {
            Some(ended) => Poll::Ready(ended),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for RunEnd {
    fn drop(&mut self) {
        let mut by_run = self.waiters.by_run.lock();
        if let Some(waiting) = by_run.get_mut(&self.run) {
            waiting.retain(|other| !Arc::ptr_eq(other, &self.waiter));
            if waiting.is_empty() {
                by_run.remove(&self.run);
            }
        }
    }
}
