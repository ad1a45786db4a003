//! The columns of a run that only its holder changes, as Postgres stores them. Functions and statements have marks in braces
//! where they name them, so that a new column is named here alone, apart from the table itself.
//!
//! | mark | what stands there |
//! |---|---|
//! | `{columns}`, `{r.columns}` | their names, also those of the table that is called `r` |
//! | `{column_types}` | their names and types, as a function answers them or JSON has them |
//! | `{w.values}` | their values in the JSON that is called `w`; a field that is left out is as in a new run |
//! | `{ended_columns}` | what every end of a run makes of them, as assignments: `HolderColumns::ended` of outlast-core |

use std::sync::Arc;

use outlast_core::{HolderColumns, Stuck};
use tokio_postgres::Row;

use crate::fields::Rows;
use crate::row::{Damaged, get, maybe_moment, number, reason, stuck};
use crate::turn::{read_builds, write_builds};

/// One column.
struct Column {
    name: &'static str,
    sql_type: &'static str,
    /// What it is in a new run.
    new: &'static str,
    /// Whether the end of a run makes it like that of a new one.
    is_reset_by_end: bool,
    /// The first set of functions that knows it. Those of older programs leave it alone.
    since: u32,
}

const fn column(name: &'static str, sql_type: &'static str, new: &'static str) -> Column {
    Column { name, sql_type, new, is_reset_by_end: true, since: 1 }
}

/// All of them, in the order in which they are read.
const COLUMNS: [Column; 8] = [
    column("crashes", "integer", "0"),
    Column { is_reset_by_end: false, ..column("kept", "bigint", "0") },
    column("deadline", "bigint", "NULL"),
    column("stuck_reason", "text", "NULL"),
    column("stuck_message", "text", "NULL"),
    column("stuck_build", "text", "NULL"),
    column("failed_builds", "text", "''"),
    column("failed_at", "bigint", "0"),
];

/// The names by which statements call the table, and the JSON of a row.
const TABLES: [&str; 4] = ["r", "g", "w", "runs"];

/// A statement or function with the columns that this set of functions knows.
pub(crate) fn fill(text: &str, interface: u32) -> String {
    let known = || COLUMNS.iter().filter(|column| column.since <= interface);
    let list = |write: &dyn Fn(&Column) -> String| known().map(write).collect::<Vec<_>>().join(", ");
    let ended: Vec<_> = known()
        .filter(|column| column.is_reset_by_end)
        .map(|column| format!("{} = {}", column.name, column.new))
        .collect();
    let mut text = text
        .replace("{columns}", &list(&|column| column.name.to_owned()))
        .replace("{column_types}", &list(&|column| format!("{} {}", column.name, column.sql_type)))
        .replace("{ended_columns}", &ended.join(", "));
    for table in TABLES {
        let names = list(&|column| format!("{table}.{}", column.name));
        let values = list(&|column| match column.new {
            "NULL" => format!("{table}.{}", column.name),
            new => format!("coalesce({table}.{}, {new})", column.name),
        });
        text = text.replace(&format!("{{{table}.columns}}"), &names);
        text = text.replace(&format!("{{{table}.values}}"), &values);
    }
    text
}

/// Adds the columns to the fields of a row. What is as in a new run is left out.
pub(crate) fn add(rows: &mut Rows, columns: &HolderColumns) {
    let HolderColumns { crashes, kept, deadline, stuck, failed_builds } = columns;
    if *crashes > 0 {
        rows.number("crashes", i64::from(*crashes));
    }
    if *kept > 0 {
        rows.count_of("kept", *kept);
    }
    rows.moment("deadline", *deadline);
    if let Some(why @ Stuck { message, build, .. }) = stuck.as_deref() {
        rows.word("stuck_reason", reason(why));
        rows.text("stuck_message", message);
        rows.text("stuck_build", build);
    }
    if !failed_builds.is_empty() {
        rows.json_text("failed_builds", &write_builds(failed_builds));
        rows.count_of("failed_at", failed_builds.at());
    }
}

/// The columns of a row in which the first of them is at this place.
pub(crate) fn read(row: &Row, first: usize) -> Result<Arc<HolderColumns>, Damaged> {
    Ok(Arc::new(HolderColumns {
        crashes: get::<i32>(row, first)?.unsigned_abs(),
        kept: number(row, first + 1)?,
        deadline: maybe_moment(row, first + 2)?,
        stuck: stuck(row, first + 3)?.map(Box::new),
        failed_builds: read_builds(get(row, first + 6)?, number(row, first + 7)?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_lists_of_the_columns_that_the_interface_knows() {
        let filled = fill("{r.columns} | {column_types} | {w.values} | {ended_columns}", 1);
        assert!(filled.starts_with("r.crashes, r.kept, r.deadline, "), "{filled}");
        assert!(filled.contains("| crashes integer, kept bigint, deadline bigint, "), "{filled}");
        assert!(filled.contains("| coalesce(w.crashes, 0), coalesce(w.kept, 0), w.deadline, "), "{filled}");
        assert!(
            filled.contains("| crashes = 0, deadline = NULL, ") && !filled.contains("kept = "),
            "{filled}"
        );
        assert_eq!(fill("{columns}", 0), "", "older functions do not name them");
    }
}
