//! A real-time limit on waiting.
//!
//! One thread per process counts the seconds of every wait, so that a hanging test is noticed without a
//! runtime's timer and without the virtual clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Seconds after which a wait is overdue.
pub const TIMEOUT_SECONDS: u32 = 60;

static WATCHED_WAITS: Mutex<Vec<(u32, Weak<WatchedWait>)>> = Mutex::new(Vec::new());
static WAIT_ADDED: Condvar = Condvar::new();
static WATCHDOG_THREAD: Once = Once::new();

/// A wait that the watchdog observes until it is dropped.
#[derive(Debug, Default)]
pub struct WatchedWait {
    overdue: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl WatchedWait {
    /// Starts to watch a wait that begins now.
    pub fn begin() -> Arc<Self> {
        WATCHDOG_THREAD.call_once(|| {
            let thread = std::thread::Builder::new().name("outlast-watchdog".into()).spawn(watch);
            thread.expect("the system starts a thread for the watchdog");
        });
        let watched = Arc::new(Self::default());
        WATCHED_WAITS.lock().push((TIMEOUT_SECONDS, Arc::downgrade(&watched)));
        WAIT_ADDED.notify_one();
        watched
    }

    /// Whether the wait took too long. If not, `waker` is woken when it has.
    pub fn is_overdue(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        self.overdue.load(Ordering::Acquire)
    }
}

fn watch() {
    let mut watched = WATCHED_WAITS.lock();
    loop {
        watched.retain(|(_, wait)| wait.strong_count() > 0);
        if watched.is_empty() {
            WAIT_ADDED.wait(&mut watched);
            continue;
        }
        // The condition variable is a new one, so that a wait added meanwhile does not shorten the second.
        parking_lot::MutexGuard::unlocked(&mut watched, || {
            let unused = Mutex::new(());
            Condvar::new().wait_for(&mut unused.lock(), Duration::from_secs(1));
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
