//! Turns that the database rejects for a reason that may pass, for example an error of a user's trigger. They are tried
//! again a few times, separately from other turns, and then rejected permanently.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use outlast_core::turn::BasedOn;
use outlast_core::{SessionId, Turn, TurnId, WorldError};
use parking_lot::Mutex;

use crate::connection::database::{CallError, Database};

/// How often a turn is tried before it is rejected permanently. With the pauses that a worker makes before it repeats a
/// blocked turn, that takes about two seconds.
const TRIES_MAX: u32 = 10;

/// How often a turn is tried if the error usually affects the whole database. That takes about seven seconds.
const UNCERTAIN_TRIES_MAX: u32 = 20;

/// How often a turn is tried that starts its run. It is lower, because a client waits for the start.
const START_TRIES_MAX: u32 = 5;

/// How often a turn is tried, and for how long, if each try takes long.
const SLOW_TRIES_MAX: u32 = 3;
const SLOW_DURATION: Duration = Duration::from_secs(30);

/// The number of turns that are remembered. If there are more, all of them are counted from 0 again.
const TURNS_MAX: usize = 100_000;

/// How long the probe may take: a commit without turns. If it takes longer, commits do not work.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes the probe writes to check whether there is space: this number plus twice the size of the turns, up to
/// the limit.
const PROBE_BYTES: usize = 64 << 10;
const PROBE_BYTES_MAX: usize = 8 << 20;

/// The turns that were rejected and are tried again.
#[derive(Debug, Default)]
pub(crate) struct RejectedTurns(Mutex<HashMap<TurnId, RetryState>>);

/// How often a turn was tried, and since when.
#[derive(Debug)]
struct RetryState {
    /// How often the turn was rejected when it was alone in its statement.
    tries: u32,
    since: Instant,
}

impl RetryState {
    #[allow(clippy::disallowed_methods, reason = "how long a server keeps rejecting a turn, in real time")]
    fn new() -> Self {
        Self { tries: 0, since: Instant::now() }
    }
}

impl RejectedTurns {
    /// The answer to a turn that was rejected when it was alone in its statement: `rejection` if that is permanent, and
    /// `Blocked` if the turn shall be tried again.
    pub(crate) fn retry_or_reject(
        &self,
        turn: &Turn,
        failure: &CallError,
        rejection: WorldError,
    ) -> WorldError {
        let tries_max = match &turn.based_on {
            BasedOn::Start(_) => START_TRIES_MAX,
            BasedOn::Turn(_) if failure.is_caused_by_turn() => TRIES_MAX,
            BasedOn::Turn(_) => UNCERTAIN_TRIES_MAX,
        };
        let (tries, is_slow) = if failure.is_permanent() { (u32::MAX, false) } else { self.count_try(turn) };
        if tries >= tries_max || is_slow {
            self.0.lock().remove(&turn.id);
            return rejection;
        }
        if tries == 1 {
            tracing::warn!(run = %turn.run, error = %rejection, "the database rejects a turn; trying again");
        }
        WorldError::blocked(format!("{rejection}; trying again"))
    }

    /// The answer to a turn whose statement was rejected because of one of its turns. From now on the turn is tried
    /// separately from others.
    pub(crate) fn isolate(&self, turn: &Turn, rejection: &WorldError) -> WorldError {
        self.update_state(turn, |_| ());
        WorldError::blocked(format!("{rejection}; trying again"))
    }

    /// Counts a try. Returns the number of tries, and whether they took too long.
    fn count_try(&self, turn: &Turn) -> (u32, bool) {
        self.update_state(turn, |state| {
            state.tries += 1;
            (state.tries, state.tries >= SLOW_TRIES_MAX && state.since.elapsed() > SLOW_DURATION)
        })
    }

    /// Changes the state of a turn, which is added if it is new.
    fn update_state<T>(&self, turn: &Turn, change: impl FnOnce(&mut RetryState) -> T) -> T {
        let mut states = self.0.lock();
        if states.len() >= TURNS_MAX && !states.contains_key(&turn.id) {
            states.clear();
        }
        change(states.entry(turn.id).or_insert_with(RetryState::new))
    }

    /// Those of the turns that are tried separately from others.
    pub(crate) fn isolated(&self, turns: &[Turn]) -> HashSet<TurnId> {
        let states = self.0.lock();
        if states.is_empty() {
            return HashSet::new();
        }
        turns.iter().map(|turn| turn.id).filter(|id| states.contains_key(id)).collect()
    }

    /// Whether every one of the turns was rejected before when it was alone in its statement.
    pub(crate) fn all_were_rejected(&self, turns: &[Turn]) -> bool {
        let states = self.0.lock();
        !states.is_empty()
            && turns.iter().all(|turn| states.get(&turn.id).is_some_and(|state| state.tries > 0))
    }

    /// Forgets turns that have been written.
    pub(crate) fn forget_written<'a>(&self, written: impl Iterator<Item = &'a Turn>) {
        let mut states = self.0.lock();
        if !states.is_empty() {
            for turn in written {
                states.remove(&turn.id);
            }
        }
    }
}

/// Whether the database accepts commits now, apart from the content of the rejected turns, whose size is `bytes`. If
/// it does, one of these turns is the cause of the error.
pub(crate) async fn can_commit(
    database: &Database,
    session: SessionId,
    failure: &CallError,
    bytes: usize,
) -> bool {
    let wanted = if failure.is_out_of_space() { bytes.saturating_mul(2) + PROBE_BYTES } else { 0 };
    let bytes = wanted.min(PROBE_BYTES_MAX).to_string();
    let sql = database.sql.probe.replace("{session}", &session.to_string()).replace("{bytes}", &bytes);
    let database = Database { timeout: PROBE_TIMEOUT, ..database.clone() };
    match database.with_connection(async |connection| connection.batch_execute(&sql).await).await {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(error = %database.world_error(&error), "a commit without turns fails as well");
            false
        }
    }
}
