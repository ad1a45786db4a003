//! Failed runs, by the time of their end and by the fingerprint of their failure.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{FailureQuery, RunView};
use rusqlite::{Connection, ToSql};

use crate::connection::error::Refusal;
use crate::schema::row::run_view;
use crate::schema::sql;

/// Failed runs, those that ended last first.
pub(crate) fn failures(connection: &Connection, query: &FailureQuery) -> Result<Vec<RunView>, Refusal> {
    let [(from, from_run), (before, before_run)] = query.bounds();
    let (from_run, before_run) = (from_run.to_string(), before_run.to_string());
    let (from, before) = (from.as_micros(), before.as_micros());
    let limit = query.limit.min(PAGE_RUNS_MAX) as i64;
    let fingerprint = query.fingerprint.map(u64::cast_signed);
    let mut values: Vec<&dyn ToSql> = vec![&from, &from_run, &before, &before_run, &limit];
    values.extend(fingerprint.as_ref().map(|fingerprint| fingerprint as &dyn ToSql));
    let text = if fingerprint.is_some() { &sql::FAILURES_BY_FINGERPRINT } else { &sql::FAILURES };
    let mut statement = connection.prepare_cached(text)?;
    let rows = statement.query_map(&*values, run_view)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_in_the_order_of_their_index() {
        let connection = Connection::open_in_memory().unwrap();
        crate::schema::migrate::create_schema(&connection).unwrap();
        let cases = [
            (&*sql::FAILURES, "INDEX runs_failed ((ended_at,id)>(?,?) AND (ended_at,id)<(?,?))"),
            (
                &*sql::FAILURES_BY_FINGERPRINT,
                "INDEX runs_by_fingerprint (fingerprint=? AND (ended_at,id)>(?,?) AND (ended_at,id)<(?,?))",
            ),
        ];
        for (sql, index) in cases {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let values = vec![rusqlite::types::Value::Null; statement.parameter_count()];
            let steps = statement.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).unwrap();
            let plan = steps.collect::<Result<Vec<String>, _>>().unwrap().join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{plan}");
        }
    }
}
