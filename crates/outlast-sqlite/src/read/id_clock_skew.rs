//! The difference between the time in a run's id and the time of its start, for lists by time
//! ([why](outlast_core::paging)).

use outlast_core::paging::{IdSkew, id_skew};
use outlast_core::{RunId, Timestamp};
use rusqlite::{Connection, Error, OptionalExtension};

use crate::schema::sql;

/// The writer's cache of the range of differences, in milliseconds. The range in the file only grows, so a difference
/// inside the cached range is also inside the stored one.
#[derive(Debug, Default)]
pub(crate) struct IdClockSkew(Option<IdSkew>);

impl IdClockSkew {
    /// Records the difference of a run that started at `at`. Writes to the file only if the range grows.
    pub(crate) fn record(&mut self, connection: &Connection, run: RunId, at: Timestamp) -> Result<(), Error> {
        let difference = id_skew(run, at);
        if self.0.as_ref().is_some_and(|known| known.contains(&difference)) {
            return Ok(());
        }
        let mut widen = connection.prepare_cached(sql::ID_SKEW_WIDEN)?;
        self.0 = Some(widen.query_row([difference], |row| Ok(row.get(0)?..=row.get(1)?))?);
        Ok(())
    }

    /// Discards the cached range, because the transaction that may have widened it was rolled back.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// The range of differences in the file; `None` if no run was ever started.
pub(crate) fn stored(connection: &Connection) -> Result<Option<IdSkew>, Error> {
    let mut skew = connection.prepare_cached(sql::ID_SKEW)?;
    skew.query_row([], |row| Ok(row.get(0)?..=row.get(1)?)).optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_smallest_and_the_largest_difference() {
        let file = Connection::open_in_memory().unwrap();
        crate::schema::migrate::create_schema(&file).unwrap();
        let mut skew = IdClockSkew::default();
        assert_eq!(stored(&file), Ok(None));
        for (id_millis, millis, range) in
            [(1_000, 1_003, -3..=-3), (5_000, 2_500, -3..=2_500), (7, 7, -3..=2_500)]
        {
            let (run, at) = (RunId::from_bits(id_millis << 80), Timestamp::from_micros(millis * 1_000));
            skew.record(&file, run, at).unwrap();
            assert_eq!(stored(&file), Ok(Some(range)));
        }
    }
}
