//! A real-time limit on waiting for something that never comes.
//!
//! One thread per process counts seconds while somebody waits, so that neither a runtime's timer nor
//! the virtual clock is needed to notice that a test hangs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Seconds after which a wait is overdue.
pub(crate) const PATIENCE_SECONDS: u32 = 60;

static WATCHED: Mutex<Vec<(u32, Weak<Watched>)>> = Mutex::new(Vec::new());
static ARRIVED: Condvar = Condvar::new();
static THREAD: Once = Once::new();

/// A wait that the watchdog knows about for as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    overdue: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Watched {
    /// Watches a wait that began just now.
    pub(crate) fn begin() -> Arc<Self> {
        THREAD.call_once(|| {
            let thread = std::thread::Builder::new().name("outlast-watchdog".into()).spawn(watch);
            thread.expect("the system starts a thread for the watchdog");
        });
        let watched = Arc::new(Self::default());
        WATCHED.lock().push((PATIENCE_SECONDS, Arc::downgrade(&watched)));
        ARRIVED.notify_one();
        watched
    }

    /// Whether the wait took too long; if not yet, `waker` is woken when it does.
    pub(crate) fn is_overdue(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        self.overdue.load(Ordering::Acquire)
    }
}

fn watch() {
    let mut watched = WATCHED.lock();
    loop {
        watched.retain(|(_, wait)| wait.strong_count() > 0);
        if watched.is_empty() {
            ARRIVED.wait(&mut watched);
            continue;
        }
        // Someone who arrives meanwhile does not cut the others' second short.
        parking_lot::MutexGuard::unlocked(&mut watched, || {
            let nobody = Mutex::new(());
            Condvar::new().wait_for(&mut nobody.lock(), Duration::from_secs(1));
        });
        for (seconds, wait) in watched.iter_mut() {
            *seconds = seconds.saturating_sub(1);
            if let (0, Some(wait)) = (*seconds, wait.upgrade()) {
                wait.overdue.store(true, Ordering::Release);
                if let Some(waker) = wait.waker.lock().take() {
                    waker.wake();
                }
            }
        }
    }
}
