//! Operations by number.

use std::collections::BTreeMap;

use outlast_core::OpNumber;

use super::operation_table::Op;

/// A map from operation numbers to operations. Values are boxed because most runs have one operation at a time, and a
/// leaf of a `BTreeMap` allocates room for eleven.
#[derive(Default)]
pub(super) struct OperationMap(BTreeMap<OpNumber, Box<Op>>);

impl OperationMap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, op: OpNumber) -> bool {
        self.0.contains_key(&op)
    }

    pub(super) fn get(&self, op: OpNumber) -> Option<&Op> {
        self.0.get(&op).map(|slot| &**slot)
    }

    pub(super) fn get_mut(&mut self, op: OpNumber) -> Option<&mut Op> {
        self.0.get_mut(&op).map(|slot| &mut **slot)
    }

    pub(super) fn insert(&mut self, op: OpNumber, slot: Op) {
        self.0.insert(op, Box::new(slot));
    }

    pub(super) fn remove(&mut self, op: OpNumber) -> Option<Op> {
        self.0.remove(&op).map(|slot| *slot)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Op> {
        self.0.values_mut().map(|slot| &mut **slot)
    }

    /// All of them, in order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OpNumber, &Op)> {
        self.0.iter().map(|(op, slot)| (*op, &**slot))
    }
}
