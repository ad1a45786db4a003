//! New ids, which are time-ordered and strictly increasing within the process, and random numbers.

#[cfg(any(test, feature = "test-support"))]
mod simulated;

use std::cell::RefCell;
use std::sync::Arc;

use outlast_core::{Clock, IdSource, MessageId, RunId, SessionId, TurnId};
use parking_lot::Mutex;

use crate::clock::SystemClock;

#[cfg(any(test, feature = "test-support"))]
pub use simulated::Simulated;

static SOURCE: Mutex<IdSource> = Mutex::new(IdSource::new());

thread_local! {
    /// The source of ids and random numbers of this thread while it is simulated.
    static SEEDED: RefCell<Option<Seeded>> = const { RefCell::new(None) };
}

struct Seeded {
    chance: fastrand::Rng,
    source: IdSource,
    clock: Arc<dyn Clock>,
    /// When the simulation began.
    since: tokio::time::Instant,
}

/// Whether this thread is simulated. It is then the only thread of the program.
pub(crate) fn is_simulated() -> bool {
    SEEDED.with_borrow(Option::is_some)
}

/// The number of this process. Simulated workers have a fixed one: what a seed does must not depend on the process.
pub(crate) fn process_id() -> u32 {
    if is_simulated() { 1 } else { std::process::id() }
}

/// When the simulation of this thread began; `None` if it is not simulated.
pub(crate) fn simulated_since() -> Option<tokio::time::Instant> {
    SEEDED.with_borrow(|seeded| Some(seeded.as_ref()?.since))
}

fn bits() -> u128 {
    let seeded = SEEDED.with_borrow_mut(|seeded| {
        let Seeded { chance, source, clock, .. } = seeded.as_mut()?;
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

/// A secret of 256 bits from the operating system, as text that fits into a URL. Nobody can guess it.
///
/// # Panics
///
/// If the operating system has no random numbers, which must not go unnoticed.
pub(crate) fn secret() -> String {
    let seeded = SEEDED.with_borrow_mut(|seeded| {
        let chance = &mut seeded.as_mut()?.chance;
        Some(format!("{:032x}{:032x}", chance.u128(..), chance.u128(..)))
    });
    seeded.unwrap_or_else(|| {
        let mut bytes = [0; 32];
        if let Err(error) = getrandom::fill(&mut bytes) {
            panic!("the operating system has no random numbers: {error}");
        }
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    })
}

/// A random number from 0 to 1. Everything that depends on it must be recorded.
pub(crate) fn chance() -> f64 {
    let seeded = SEEDED.with_borrow_mut(|seeded| Some(seeded.as_mut()?.chance.f64()));
    seeded.unwrap_or_else(fastrand::f64)
}
