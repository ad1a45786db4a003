//! Records, by space and id.

use std::collections::BTreeMap;
use std::ops::Bound;

use outlast_core::limits::{RECORDS_BATCH_MAX, RECORDS_MAX};
use outlast_core::record::too_many_records;
use outlast_core::{ListOrder, NewRecord, RecordQuery, StoredRecord, Timestamp, WorldError};

/// The body of a record, and when it was stored.
type Stored = (String, Timestamp);

/// All records.
#[derive(Debug, Default)]
pub(crate) struct Records(BTreeMap<String, BTreeMap<String, Stored>>);

impl Records {
    pub(crate) fn put(
        &mut self,
        space: &str,
        records: Vec<NewRecord>,
        now: Timestamp,
    ) -> Result<(), WorldError> {
        let of_space = self.0.entry(space.to_owned()).or_default();
        let new = records.iter().filter(|record| !of_space.contains_key(&record.id)).count();
        if new > 0 && of_space.len() + new > RECORDS_MAX {
            return Err(too_many_records(space));
        }
        of_space.extend(records.into_iter().map(|record| (record.id, (record.body, now))));
        Ok(())
    }

    pub(crate) fn put_if_absent(
        &mut self,
        space: &str,
        record: NewRecord,
        now: Timestamp,
    ) -> Result<bool, WorldError> {
        if self.get(space, &record.id).is_some() {
            return Ok(false);
        }
        self.put(space, vec![record], now).map(|()| true)
    }

    pub(crate) fn get(&self, space: &str, id: &str) -> Option<StoredRecord> {
        self.0.get(space)?.get_key_value(id).map(stored)
    }

    pub(crate) fn page(&self, query: &RecordQuery) -> Vec<StoredRecord> {
        let Some(of_space) = self.0.get(&query.space) else { return Vec::new() };
        let after = query.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let limit = query.limit.min(RECORDS_BATCH_MAX);
        match query.order {
            ListOrder::OldestFirst => {
                of_space.range::<str, _>((after, Bound::Unbounded)).take(limit).map(stored).collect()
            }
            ListOrder::NewestFirst => {
                of_space.range::<str, _>((Bound::Unbounded, after)).rev().take(limit).map(stored).collect()
            }
        }
    }

    pub(crate) fn delete(&mut self, space: &str, ids: &[String]) -> u64 {
        let Some(of_space) = self.0.get_mut(space) else { return 0 };
        ids.iter().filter(|id| of_space.remove(*id).is_some()).count() as u64
    }
}

fn stored((id, (body, at)): (&String, &Stored)) -> StoredRecord {
    StoredRecord { id: id.clone(), body: body.clone(), at: *at }
}
