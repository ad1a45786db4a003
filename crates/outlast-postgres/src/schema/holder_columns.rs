//! The holder's columns: those columns of a run that only its holder changes.
//!
//! Statements and functions contain placeholders for them, so a new column is named only here and in the migration that
//! adds it.
//!
//! | placeholder | replaced by |
//! |---|---|
//! | `{columns}`, `{r.columns}` | their names; with the table alias `r` |
//! | `{assigned}` | the names of those that a commit assigns; it sets and clears single marks instead of the whole column |
//! | `{column_types}` | their names and types, for the result of a function or a JSON record |
//! | `{w.values}` | the values of the assigned ones in the JSON record `w`; a missing field has the value of a new run |
//! | `{ended_columns}` | assignments that apply the end of a run: `HolderColumns::ended` of outlast-core |

use std::sync::Arc;

use outlast_core::{HolderColumns, Marks, RunFailure, Stuck};
use tokio_postgres::Row;

use crate::encoding::json_rows::JsonRows;
use crate::encoding::row::{InvalidRow, get, invalid_column, maybe_timestamp, number, stuck};
use crate::encoding::turn::{read_builds, write_builds};

/// One column.
struct HolderColumn {
    name: &'static str,
    sql_type: &'static str,
    /// Its value in a new run, as SQL.
    initial_value: &'static str,
    /// Whether the end of a run resets it to that value.
    is_reset_by_end: bool,
    /// Whether a commit assigns its value.
    is_assigned: bool,
    /// The first interface whose functions know it. Functions of older interfaces leave it unchanged.
    since_interface: u32,
}

const fn column(name: &'static str, sql_type: &'static str, initial_value: &'static str) -> HolderColumn {
    HolderColumn {
        name,
        sql_type,
        initial_value,
        is_reset_by_end: true,
        is_assigned: true,
        since_interface: 1,
    }
}

/// All holder's columns, in the order in which they are read.
const HOLDER_COLUMNS: [HolderColumn; 14] = [
    column("crashes", "integer", "0"),
    HolderColumn { is_reset_by_end: false, ..column("kept", "bigint", "0") },
    column("deadline", "bigint", "NULL"),
    column("stuck_reason", "text", "NULL"),
    column("stuck_message", "text", "NULL"),
    column("stuck_build", "text", "NULL"),
    column("failed_builds", "text", "''"),
    column("failed_at", "bigint", "0"),
    HolderColumn { is_reset_by_end: false, since_interface: 3, ..column("replay_from", "bigint", "0") },
    HolderColumn { is_reset_by_end: false, since_interface: 3, ..column("continued", "bigint", "0") },
    HolderColumn {
        is_reset_by_end: false,
        is_assigned: false,
        since_interface: 3,
        ..column("marks", "integer", "0")
    },
    HolderColumn { since_interface: 3, ..column("retrying", "boolean", "false") },
    HolderColumn { since_interface: 3, ..column("failure", "text", "NULL") },
    HolderColumn { since_interface: 3, ..column("fingerprint", "bigint", "NULL") },
];

/// The aliases that statements use for the table, and for the JSON record of a row.
const TABLE_ALIASES: [&str; 4] = ["r", "g", "w", "runs"];

/// Replaces the placeholders of a statement or function by the columns that the interface knows.
pub(crate) fn fill_placeholders(text: &str, interface: u32) -> String {
    let known = || HOLDER_COLUMNS.iter().filter(|column| column.since_interface <= interface);
    let list = |write: &dyn Fn(&HolderColumn) -> String| known().map(write).collect::<Vec<_>>().join(", ");
    let list_assigned = |write: &dyn Fn(&HolderColumn) -> String| {
        known().filter(|column| column.is_assigned).map(write).collect::<Vec<_>>().join(", ")
    };
    let ended: Vec<_> = known()
        .filter(|column| column.is_reset_by_end)
        .map(|column| format!("{} = {}", column.name, column.initial_value))
        .collect();
    let mut text = text
        .replace("{columns}", &list(&|column| column.name.to_owned()))
        .replace("{assigned}", &list_assigned(&|column| column.name.to_owned()))
        .replace("{column_types}", &list(&|column| format!("{} {}", column.name, column.sql_type)))
        .replace("{ended_columns}", &ended.join(", "));
    for table in TABLE_ALIASES {
        let names = list(&|column| format!("{table}.{}", column.name));
        let values = list_assigned(&|column| match column.initial_value {
            "NULL" => format!("{table}.{}", column.name),
            initial_value => format!("coalesce({table}.{}, {initial_value})", column.name),
        });
        text = text.replace(&format!("{{{table}.columns}}"), &names);
        text = text.replace(&format!("{{{table}.values}}"), &values);
    }
    text
}

/// Adds the columns to a row of parameters. Values of a new run are left out.
pub(crate) fn add(rows: &mut JsonRows, columns: &HolderColumns) {
    let HolderColumns { crashes, kept, deadline, stuck, failed_builds, replay_from, continued, .. } = columns;
    if *crashes > 0 {
        rows.number("crashes", i64::from(*crashes));
    }
    if *kept > 0 {
        rows.unsigned("kept", *kept);
    }
    rows.timestamp("deadline", *deadline);
    if let Some(Stuck { reason, message, build, .. }) = stuck.as_deref() {
        rows.word("stuck_reason", reason.stored_name());
        rows.text("stuck_message", message);
        rows.text("stuck_build", build);
    }
    if !failed_builds.is_empty() {
        rows.plain_text("failed_builds", &write_builds(failed_builds));
        rows.unsigned("failed_at", failed_builds.at());
    }
    if *replay_from > 0 {
        rows.unsigned("replay_from", *replay_from);
    }
    if *continued > 0 {
        rows.unsigned("continued", *continued);
    }
    if columns.is_retrying {
        rows.flag("retrying", true);
    }
    if let Some(failure) = columns.failure.as_deref() {
        rows.plain_text("failure", &failure.to_stored());
        rows.number("fingerprint", failure.fingerprint.cast_signed());
    }
}

/// Reads the columns from a row; `first` is the index of the first of them.
pub(crate) fn read(row: &Row, first: usize) -> Result<Arc<HolderColumns>, InvalidRow> {
    Ok(Arc::new(HolderColumns {
        crashes: get::<i32>(row, first)?.unsigned_abs(),
        kept: number(row, first + 1)?,
        deadline: maybe_timestamp(row, first + 2)?,
        stuck: stuck(row, first + 3)?.map(Box::new),
        failed_builds: read_builds(get(row, first + 6)?, number(row, first + 7)?),
        replay_from: number(row, first + 8)?,
        continued: number(row, first + 9)?,
        marks: Marks::from_bits(get::<i32>(row, first + 10)?.cast_unsigned()).of_holder(),
        is_retrying: get(row, first + 11)?,
        failure: read_failure(row, first + 12)?,
    }))
}

/// Reads why the run failed: the columns with the summary and the fingerprint.
fn read_failure(row: &Row, column: usize) -> Result<Option<Box<RunFailure>>, InvalidRow> {
    let Some(text) = get::<Option<&str>>(row, column)? else { return Ok(None) };
    let fingerprint = get::<Option<i64>>(row, column + 1)?.unwrap_or_default();
    let failure = RunFailure::from_stored(text, fingerprint.cast_unsigned());
    failure.map(|failure| Some(Box::new(failure))).map_err(|error| invalid_column(column, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_lists_of_the_columns_that_the_interface_knows() {
        let filled = fill_placeholders("{r.columns} | {column_types} | {w.values} | {ended_columns}", 1);
        assert!(filled.starts_with("r.crashes, r.kept, r.deadline, "), "{filled}");
        assert!(filled.contains("| crashes integer, kept bigint, deadline bigint, "), "{filled}");
        assert!(filled.contains("| coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, "), "{filled}");
        assert!(
            filled.contains("| crashes = 0, deadline = NULL, ") && !filled.contains("kept = "),
            "{filled}"
        );
        assert_eq!(fill_placeholders("{columns}", 0), "", "older functions do not name them");
    }
}
