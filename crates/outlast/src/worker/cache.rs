//! The futures of waiting runs that this worker released: going on with one needs no replay.

use std::collections::BTreeMap;

use outlast_core::{RunId, RunMap, TurnId};

use crate::replay::Machine;

/// Keeps the machines used last, each as it was after one turn.
#[derive(Debug)]
pub(super) struct Cache {
    limit: usize,
    clock: u64,
    by_run: RunMap<Cached>,
    by_use: BTreeMap<u64, RunId>,
}

#[derive(Debug)]
struct Cached {
    turn: TurnId,
    used: u64,
    machine: Machine,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, clock: 0, by_run: RunMap::default(), by_use: BTreeMap::new() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.by_run.len()
    }

    /// Whether the run is here as it was after `turn`.
    pub(super) fn has(&self, run: RunId, turn: TurnId) -> bool {
        self.by_run.get(&run).is_some_and(|cached| cached.turn == turn)
    }

    /// Takes the run out, if it is here as it was after `turn`. An older state is forgotten.
    pub(super) fn take(&mut self, run: RunId, turn: TurnId) -> Option<Machine> {
        let cached = self.by_run.remove(&run)?;
        self.by_use.remove(&cached.used);
        (cached.turn == turn).then_some(cached.machine)
    }

    /// Keeps the run as it is after `turn`; gives back what must make room.
    pub(super) fn put(&mut self, run: RunId, turn: TurnId, machine: Machine) -> Option<Machine> {
        if self.limit == 0 {
            return Some(machine);
        }
        self.clock += 1;
        let replaced = self.by_run.insert(run, Cached { turn, used: self.clock, machine });
        self.by_use.insert(self.clock, run);
        if let Some(replaced) = replaced {
            self.by_use.remove(&replaced.used);
            return Some(replaced.machine);
        }
        if self.by_run.len() <= self.limit {
            return None;
        }
        let (_, oldest) = self.by_use.pop_first()?;
        self.by_run.remove(&oldest).map(|cached| cached.machine)
    }
}
