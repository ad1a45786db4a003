//! Turns that the database refuses for a reason that may pass, as what a trigger raises: they are tried again a few times,
//! apart from others, and then refused for good.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use outlast_core::turn::BasedOn;
use outlast_core::{SessionId, Turn, TurnId, WorldError};
use parking_lot::Mutex;

use crate::store::{Failed, Store};

/// How often a turn is tried before it is refused for good. With the pauses that a worker makes between tries of a
/// turn that is not free, that is about two seconds.
const TRIES_MAX: u32 = 10;

/// How often a turn is tried that is refused as if something were wrong with the whole database: about seven seconds.
const DOUBTFUL_TRIES_MAX: u32 = 20;

/// How often a turn is tried that starts its run: its client waits.
const START_TRIES_MAX: u32 = 5;

/// How often a turn is tried, and for how long, when each try takes long.
const SLOW_TRIES_MAX: u32 = 3;
const SLOW: Duration = Duration::from_secs(30);

/// So many turns are remembered. Beyond that all of them are counted anew.
const TURNS_MAX: usize = 100_000;

/// How long a commit of no turns may take; then nothing works.
const PROBE_TIME: Duration = Duration::from_secs(5);

/// How much is written to see whether there is space: this much, and twice as much as the turns have, up to the limit.
const PROBE_BYTES: usize = 64 << 10;
const PROBE_BYTES_MAX: usize = 8 << 20;

/// The turns that were refused and are tried again, with how often they were tried.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<TurnId, Tries>>);

#[derive(Debug)]
struct Tries {
    /// How often it was refused alone.
    count: u32,
    since: Instant,
}

impl Tries {
    #[allow(clippy::disallowed_methods, reason = "for how long a server keeps refusing, in real time")]
    fn new() -> Self {
        Self { count: 0, since: Instant::now() }
    }
}

impl Refused {
    /// What a turn is answered that was refused alone, for good by `refusal`.
    pub(crate) fn judge(&self, turn: &Turn, failed: &Failed, refusal: WorldError) -> WorldError {
        let tries_max = match &turn.based_on {
            BasedOn::Start(_) => START_TRIES_MAX,
            BasedOn::Turn(_) if failed.is_of_turn() => TRIES_MAX,
            BasedOn::Turn(_) => DOUBTFUL_TRIES_MAX,
        };
        let (tries, is_slow) = if failed.is_permanent() { (u32::MAX, false) } else { self.count(turn) };
        if tries >= tries_max || is_slow {
            self.0.lock().remove(&turn.id);
            return refusal;
        }
        if tries == 1 {
            tracing::warn!(run = %turn.run, error = %refusal, "a turn is refused, and tried again");
        }
        WorldError::Blocked(format!("{refusal}; it is tried again"))
    }

    /// What a turn is answered that is tried apart from the others of its statement: one of them was refused.
    pub(crate) fn set_apart(&self, turn: &Turn, refusal: &WorldError) -> WorldError {
        self.with(turn, |_| ());
        WorldError::Blocked(format!("{refusal}; it is tried again"))
    }

    /// Counts a try; answers how many there were, and whether they took too long.
    fn count(&self, turn: &Turn) -> (u32, bool) {
        self.with(turn, |tries| {
            tries.count += 1;
            (tries.count, tries.count >= SLOW_TRIES_MAX && tries.since.elapsed() > SLOW)
        })
    }

    fn with<T>(&self, turn: &Turn, change: impl FnOnce(&mut Tries) -> T) -> T {
        let mut turns = self.0.lock();
        if turns.len() >= TURNS_MAX && !turns.contains_key(&turn.id) {
            turns.clear();
        }
        change(turns.entry(turn.id).or_insert_with(Tries::new))
    }

    /// Those of the turns that are tried apart from others.
    pub(crate) fn apart(&self, turns: &[Turn]) -> HashSet<TurnId> {
        let known = self.0.lock();
        if known.is_empty() {
            return HashSet::new();
        }
        turns.iter().map(|turn| turn.id).filter(|id| known.contains_key(id)).collect()
    }

    /// Whether all of the turns were refused alone before.
    pub(crate) fn were_all(&self, turns: &[Turn]) -> bool {
        let known = self.0.lock();
        !known.is_empty() && turns.iter().all(|turn| known.get(&turn.id).is_some_and(|tries| tries.count > 0))
    }

    /// These turns were written.
    pub(crate) fn written<'a>(&self, written: impl Iterator<Item = &'a Turn>) {
        let mut turns = self.0.lock();
        if !turns.is_empty() {
            for turn in written {
                turns.remove(&turn.id);
            }
        }
    }
}

/// Whether commits work now, apart from what turns of so many bytes say: then it is one of those that is refused, and not
/// all of them.
pub(crate) async fn others_work(store: &Store, session: SessionId, failed: &Failed, bytes: usize) -> bool {
    let wanted = if failed.is_about_space() { bytes.saturating_mul(2) + PROBE_BYTES } else { 0 };
    let bytes = wanted.min(PROBE_BYTES_MAX).to_string();
    let sql = store.sql.probe.replace("{session}", &session.to_string()).replace("{bytes}", &bytes);
    let store = Store { timeout: PROBE_TIME, ..store.clone() };
    match store.with_connection(async |connection| connection.batch_execute(&sql).await).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(error = %store.world_error(&error), "a commit of no turns is refused too");
            false
        }
    }
}
