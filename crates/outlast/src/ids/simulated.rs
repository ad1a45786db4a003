//! Ids and random numbers that follow a seed.

use std::fmt;
use std::sync::Arc;

use outlast_core::{Clock, IdSource};

use super::{SEEDED, Seeded};

/// Ids and chance of this thread follow a seed until this is dropped: for the simulation in
/// `outlast-conformance`.
#[must_use = "the thread is simulated until this is dropped"]
pub struct Simulated(());

impl Simulated {
    /// Begins the simulation of this thread, in a runtime whose time is paused. Ids contain the time of this clock.
    #[allow(clippy::disallowed_methods, reason = "the paused time of the runtime")]
    pub fn begin(seed: u64, clock: Arc<dyn Clock>) -> Self {
        let (chance, since) = (fastrand::Rng::with_seed(seed), tokio::time::Instant::now());
        let seeded = Seeded { chance, source: IdSource::new(), clock, since };
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
