//! New ids: time-ordered, unguessable enough, strictly rising within the process. And chance itself.

use outlast_core::{Clock, IdSource, MessageId, RunId, SessionId, TurnId};
use parking_lot::Mutex;

use crate::clock::SystemClock;

static SOURCE: Mutex<IdSource> = Mutex::new(IdSource::new());

fn bits() -> u128 {
    let entropy = fastrand::u128(..);
    SOURCE.lock().next(SystemClock.now(), entropy)
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

/// A number from 0 to 1, at random. What depends on it must be recorded.
pub(crate) fn chance() -> f64 {
    fastrand::f64()
}
