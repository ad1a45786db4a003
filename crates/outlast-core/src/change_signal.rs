//! Notifications within one process: a change signal for workers, the callers that wait for a run to end, and those that
//! watch its streams.
//!
//! None of them needs an async runtime: they store wakers. A notification is only a hint; the receiver always queries the
//! world.

use std::any::Any;
use std::future::{Future, poll_fn};
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
    pub fn wait(self: &Arc<Self>, run: RunId) -> EndSignal {
        let waiter = Arc::new(Waiter::default());
        self.by_run.lock().entry(run).or_default().push(waiter.clone());
        EndSignal { waiters: self.clone(), run, waiter }
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
pub struct EndSignal {
    waiters: Arc<Waiters>,
    run: RunId,
    waiter: Arc<Waiter>,
}

impl Future for EndSignal {
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

impl Drop for EndSignal {
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

/// The callers in this process that watch the streams and the published state of a run.
#[derive(Debug)]
pub struct RunWatchers {
    clock: Arc<dyn Clock>,
    by_run: Mutex<RunMap<Vec<Arc<Watcher>>>>,
}

#[derive(Debug, Default)]
struct Watcher(Mutex<WatcherState>);

#[derive(Debug, Default)]
struct WatcherState {
    /// Whether something may have changed since the caller last asked.
    is_notified: bool,
    /// The caller, while it waits.
    waker: Option<Waker>,
    /// Held from the notification until the waiting caller wakes, so that a virtual clock does not advance in between.
    busy: Option<Busy>,
}

impl RunWatchers {
    /// No watchers.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, by_run: Mutex::default() }
    }

    /// Registers immediately: every change from now on is reported.
    pub fn watch(self: &Arc<Self>, run: RunId) -> RunWatch {
        let watcher = Arc::new(Watcher::default());
        self.by_run.lock().entry(run).or_default().push(watcher.clone());
        RunWatch { watchers: self.clone(), run, watcher, guard: None }
    }

    /// Whether there are no watchers.
    pub fn is_empty(&self) -> bool {
        self.by_run.lock().is_empty()
    }

    /// Reports a change of a run.
    pub fn notify(&self, run: RunId) {
        let watching = self.by_run.lock().get(&run).cloned();
        watching.into_iter().flatten().for_each(|watcher| self.notify_one(&watcher));
    }

    /// Reports that any run may have changed.
    pub fn notify_all(&self) {
        let watching: Vec<_> = self.by_run.lock().values().flatten().cloned().collect();
        watching.iter().for_each(|watcher| self.notify_one(watcher));
    }

    fn notify_one(&self, watcher: &Watcher) {
        let mut state = watcher.0.lock();
        state.is_notified = true;
        // A caller that does not wait now may never ask again, so the clock must not wait for it.
        if let Some(waker) = state.waker.take() {
            state.busy = Some(self.clock.busy());
            waker.wake();
        }
    }
}

/// Watches the streams and the published state of one run; see [`World::watch`](crate::World::watch).
#[derive(Debug)]
pub struct RunWatch {
    watchers: Arc<RunWatchers>,
    run: RunId,
    watcher: Arc<Watcher>,
    /// What the world keeps while the caller watches.
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl RunWatch {
    /// Keeps a value of the world until the watch is dropped.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Completes when the run may have changed since the watch was created or this last completed. The caller holds the
    /// returned [`Busy`] while it handles the change.
    pub async fn changed(&mut self) -> Busy {
        let waiting = WaitingWatcher(&self.watcher);
        poll_fn(|cx| {
            let mut state = waiting.0.0.lock();
            if std::mem::take(&mut state.is_notified) {
                return Poll::Ready(state.busy.take());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
        .unwrap_or_else(|| self.watchers.clock.busy())
    }
}

/// A caller that waits. When it stops, no clock waits for it any more.
struct WaitingWatcher<'a>(&'a Watcher);

impl Drop for WaitingWatcher<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        let unused = (state.waker.take(), state.busy.take());
        drop(state);
        drop(unused);
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        let mut by_run = self.watchers.by_run.lock();
        if let Some(watching) = by_run.get_mut(&self.run) {
            watching.retain(|other| !Arc::ptr_eq(other, &self.watcher));
            if watching.is_empty() {
                by_run.remove(&self.run);
            }
        }
    }
}
