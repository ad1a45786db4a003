//! The cache of the futures of waiting runs that this worker has released: they continue without a replay.

use std::collections::BTreeMap;

use outlast_core::{RunId, RunMap, TurnId};

use crate::replay::Machine;

/// A least-recently-used cache of machines, each as it was after a turn.
#[derive(Debug)]
pub(in crate::worker) struct MachineCache {
    limit: usize,
    /// Counts the insertions.
    clock: u64,
    by_run: RunMap<CachedMachine>,
    by_use: BTreeMap<u64, RunId>,
}

#[derive(Debug)]
struct CachedMachine {
    turn: TurnId,
    used: u64,
    machine: Box<Machine>,
}

impl MachineCache {
    pub(in crate::worker) fn new(limit: usize) -> Self {
        Self { limit, clock: 0, by_run: RunMap::default(), by_use: BTreeMap::new() }
    }

    /// The number of machines in the cache.
    pub(in crate::worker) fn len(&self) -> usize {
        self.by_run.len()
    }

    /// Whether the cache contains the run's machine as it was after `turn`.
    pub(in crate::worker) fn has(&self, run: RunId, turn: TurnId) -> bool {
        self.by_run.get(&run).is_some_and(|cached| cached.turn == turn)
    }

    /// Removes the run's machine. Returns it if it is as it was after `turn`, and drops an older one.
    pub(in crate::worker) fn take(&mut self, run: RunId, turn: TurnId) -> Option<Box<Machine>> {
        let cached = self.by_run.remove(&run)?;
        self.by_use.remove(&cached.used);
        (cached.turn == turn).then_some(cached.machine)
    }

    /// Adds the run's machine as it is after `turn`. Returns the machine that is evicted.
    pub(in crate::worker) fn put(
        &mut self,
        run: RunId,
        turn: TurnId,
        machine: Box<Machine>,
    ) -> Option<Box<Machine>> {
        if self.limit == 0 {
            return Some(machine);
        }
        self.clock += 1;
        let replaced = self.by_run.insert(run, CachedMachine { turn, used: self.clock, machine });
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
