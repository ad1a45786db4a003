//! New ids, which are time-ordered and strictly increasing within the process, and random numbers.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use outlast_core::{Clock, IdSource, MessageId, RunId, SessionId, TurnId};
use parking_lot::Mutex;

use crate::clock::SystemClock;

static SOURCE: Mutex<IdSource> = Mutex::new(IdSource::new());

thread_local! {
    /// The source of ids and random numbers of this thread while it is simulated.
    static SEEDED: RefCell<Option<Seeded>> = const { RefCell::new(None) };
}

struct Seeded {
    chance: fastrand::Rng,
    source: IdSource,
    clock: Arc<dyn Clock>,
}

/// Ids and chance of this thread follow a seed until this is dropped: for the simulation in
/// `outlast-conformance`.
#[doc(hidden)]
#[must_use = "the thread is simulated until this is dropped"]
pub struct Simulated(());

impl Simulated {
    /// Begins the simulation of this thread. Ids contain the time of this clock.
    pub fn begin(seed: u64, clock: Arc<dyn Clock>) -> Self {
        let seeded = Seeded { chance: fastrand::Rng::with_seed(seed), source: IdSource::new(), clock };
        SEEDED.set(Some(seeded));
        Self(())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        drop(SEEDED.take());
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulated")
    }
}

/// Whether this thread is simulated. It is then the only thread of the program.
pub(crate) fn is_simulated() -> bool {
    SEEDED.with_borrow(Option::is_some)
}

fn bits() -> u128 {
    let seeded = SEEDED.with_borrow_mut(|seeded| {
        let Seeded { chance, source, clock } = seeded.as_mut()?;
        Some(source.next(clock.now(), chance.u128(..)))
    });
    seeded.unwrap_or_else(|| SOURCE.lock().next(SystemClock.now(), fastrand::u128(..)))
}

pub(crate) fn run() -> RunId {
    RunId::from_bits(bits())
}

pub(crate) fn turn() -> TurnId {
    TurnId::from_bits(bits())
}

pub(crate) fn message() -> MessageId {
    MessageId::from_bits(bits())
}

pub(crate) fn session() -> SessionId {
    SessionId::from_bits(bits())
}

/// A random number from 0 to 1. Everything that depends on it must be recorded.
pub(crate) fn chance() -> f64 {
    let seeded = SEEDED.with_borrow_mut(|seeded| Some(seeded.as_mut()?.chance.f64()));
    seeded.unwrap_or_else(fastrand::f64)
}
