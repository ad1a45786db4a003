//! A scan of one index, which returns runs in order of their ids.

use outlast_core::paging::IdRange;
use outlast_core::sql::{ListIndex, ListScan, RowFilter};
use outlast_core::{FlagFilter, RunId, RunQuery, RunView};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, OptionalExtension, params_from_iter};

use crate::schema::row::{parsed, run_view};
use crate::schema::sql;

/// A scan of one index. It builds the statements of `runs_page.sql` and `runs_scan_end.sql`.
#[derive(Debug)]
pub(super) struct IndexScan {
    /// The table with its index, for the placeholder `{source}`.
    source: &'static str,
    /// The join with `runs`, if the index belongs to another table.
    join: &'static str,
    /// The column of the index that contains the run's id.
    id: &'static str,
    /// The conditions that the index supports, and their values.
    index_filters: Vec<String>,
    index_values: Vec<Value>,
    /// The conditions that are evaluated row by row, and their values.
    row_filters: Vec<String>,
    row_values: Vec<Value>,
}

/// The number of parameters that every statement begins with: the number of rows, the lowest and the highest id.
const FIRST_VALUES: usize = 3;

/// The condition for runs that were asked to stop and have not ended.
const IS_CANCELLING: &str = "cancel_requested AND ended_at IS NULL";

impl IndexScan {
    /// The scans that together return all runs of the list, except for a root.
    pub(super) fn all(query: &RunQuery) -> Vec<Self> {
        ListScan::all(query).into_iter().map(Self::of).collect()
    }

    fn of(scan: ListScan<'_>) -> Self {
        let mut of_index = Self::of_index(scan.index);
        scan.row_filters.into_iter().for_each(|filter| of_index.filter_rows(filter));
        of_index
    }

    fn new(source: &'static str) -> Self {
        let (index_filters, index_values, row_filters, row_values) = Default::default();
        Self { source, join: "", id: "id", index_filters, index_values, row_filters, row_values }
    }

    fn of_index(index: ListIndex<'_>) -> Self {
        let mut scan = Self::new(match index {
            ListIndex::All => "runs",
            ListIndex::Parent(_) => "runs INDEXED BY runs_by_parent",
            ListIndex::Root(_) => "runs INDEXED BY runs_by_root",
            ListIndex::Marked => "runs INDEXED BY runs_marked",
            ListIndex::Flag(FlagFilter::Retrying) => "runs INDEXED BY runs_retrying",
            ListIndex::Flag(_) => "runs INDEXED BY runs_cancelling",
            ListIndex::Tag { .. } => "tags AS tag INDEXED BY tags_by_value",
            ListIndex::Status(_) => "runs INDEXED BY runs_by_status",
            ListIndex::Workflow(_) => "runs INDEXED BY runs_by_workflow",
        });
        match index {
            ListIndex::All => {}
            ListIndex::Parent(run) => scan.filter_index("parent = ", run.to_string()),
            ListIndex::Root(run) => scan.filter_index("root = ", run.to_string()),
            ListIndex::Marked => scan.index_filters.push("marks <> 0".into()),
            ListIndex::Flag(FlagFilter::Retrying) => scan.index_filters.push("retrying".into()),
            ListIndex::Flag(_) => scan.index_filters.push(IS_CANCELLING.into()),
            ListIndex::Tag { name, value } => {
                // SQLite does not reorder a cross join, so the rows keep the order of the tag's index.
                scan.join = " CROSS JOIN runs ON runs.id = tag.run";
                scan.id = "tag.run";
                scan.filter_index("tag.name = ", name.to_owned());
                scan.filter_index("tag.value = ", value.to_owned());
            }
            ListIndex::Status(status) => scan.index_filters.push(format!("status = '{status}'")),
            ListIndex::Workflow(workflow) => scan.filter_index("workflow = ", workflow.to_owned()),
        }
        scan
    }

    /// Whether some conditions are evaluated row by row.
    pub(super) fn has_row_filters(&self) -> bool {
        !self.row_filters.is_empty()
    }

    /// The run of row number `rows_max` in the range, without row filters; `None` if there are fewer rows.
    pub(super) fn scan_end(
        &self,
        connection: &Connection,
        range: &IdRange,
        rows_max: usize,
    ) -> Result<Option<RunId>, Error> {
        let mut statement = connection.prepare_cached(&self.statement(sql::RUNS_SCAN_END, range, &[]))?;
        let values = self.values(range, rows_max as i64 - 1);
        statement.query_row(params_from_iter(values), |row| parsed(row, 0)).optional()
    }

    /// Adds at most `runs_max` runs of the range that match the query to `runs`.
    pub(super) fn read(
        &self,
        connection: &Connection,
        query: &RunQuery,
        range: &IdRange,
        runs_max: usize,
        runs: &mut Vec<RunView>,
    ) -> Result<(), Error> {
        // SQL cannot decide every text filter, so the number of rows must not be limited in SQL.
        let rows_max = if query.text.is_some() { -1 } else { runs_max as i64 };
        let mut statement =
            connection.prepare_cached(&self.statement(&sql::RUNS_PAGE, range, &self.row_filters))?;
        let values = self.values(range, rows_max).chain(self.row_values.iter().cloned());
        let rows = statement.query_map(params_from_iter(values), run_view)?;
        let wanted = rows.filter(|run| run.as_ref().map_or(true, |run| query.wants(run)));
        for run in wanted.take(runs_max) {
            runs.push(run?);
        }
        Ok(())
    }

    /// The parameters of a statement without row filters.
    fn values(&self, range: &IdRange, rows: i64) -> impl Iterator<Item = Value> {
        let ids = range.bounds().map(|run| Value::Text(run.to_string()));
        std::iter::once(Value::Integer(rows)).chain(ids).chain(self.index_values.iter().cloned())
    }

    /// Replaces the placeholders of a statement.
    fn statement(&self, sql: &str, range: &IdRange, row_filters: &[String]) -> String {
        let ids = format!("{0} >= ?2 AND {0} <= ?3", self.id);
        let filters: Vec<&str> =
            std::iter::once(&ids).chain(&self.index_filters).chain(row_filters).map(String::as_str).collect();
        sql.replace("{source}", self.source)
            .replace("{join}", self.join)
            .replace("{filters}", &filters.join(" AND "))
            .replace("{id}", self.id)
            .replace("{order}", if range.is_ascending { "ASC" } else { "DESC" })
    }

    /// Adds a condition that the index supports. All of these must be added before the first row filter.
    fn filter_index(&mut self, comparison: &str, value: impl Into<Value>) {
        self.index_values.push(value.into());
        self.index_filters.push(format!("{comparison}?{}", FIRST_VALUES + self.index_values.len()));
    }

    /// Adds a parameter for a row filter, and returns its name in the statement.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.row_values.push(value.into());
        format!("?{}", FIRST_VALUES + self.index_values.len() + self.row_values.len())
    }

    /// Adds a condition that no index supports.
    fn filter_rows(&mut self, filter: RowFilter<'_>) {
        let condition = match filter {
            RowFilter::Statuses(statuses) => {
                let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
                format!("status IN ({})", list.join(", "))
            }
            RowFilter::Workflow(workflow) => format!("workflow = {}", self.bind(workflow.to_owned())),
            RowFilter::Marks(marks) => format!("marks & {} <> 0", marks.bits()),
            RowFilter::Queue(queue) => format!("queue = {}", self.bind(queue.to_owned())),
            RowFilter::NotPrefix(prefix) => {
                format!("substr(workflow, 1, {}) <> {}", prefix.len(), self.bind(prefix.to_owned()))
            }
            RowFilter::Tag { name, value } => {
                let (name, value) = (self.bind(name.to_owned()), self.bind(value.to_owned()));
                format!(
                    "EXISTS (SELECT 1 FROM tags WHERE run = runs.id AND name = {name} AND value = {value})"
                )
            }
            RowFilter::CreatedFrom(from) => format!("created_at >= {}", self.bind(from.as_micros())),
            RowFilter::CreatedBefore(before) => format!("created_at < {}", self.bind(before.as_micros())),
            RowFilter::EndedFrom(from) => format!("ended_at >= {}", self.bind(from.as_micros())),
            RowFilter::EndedBefore(before) => format!("ended_at < {}", self.bind(before.as_micros())),
            RowFilter::Flag(FlagFilter::Retrying) => "retrying AND status = 'waiting'".to_owned(),
            RowFilter::Flag(_) => IS_CANCELLING.to_owned(),
            RowFilter::Text(text) => {
                let text = self.bind(text);
                // `lower` of SQLite supports ASCII only. Rows with other letters pass this filter, and the query itself
                // checks them.
                format!(
                    "(instr(lower(runs.id), {text}) OR instr(lower(workflow), {text}) OR instr(lower(key), {text}) \
                     OR octet_length(workflow) > length(workflow) OR octet_length(key) > length(key))"
                )
            }
        };
        self.row_filters.push(condition);
    }
}

#[cfg(test)]
mod tests;
