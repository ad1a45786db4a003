//! A scan of one index, which returns runs in order of their ids.

use outlast_core::paging::IdRange;
use outlast_core::queue::{BUILT_IN_PREFIX, STEP_PREFIX};
use outlast_core::{FlagFilter, RunId, RunQuery, RunView, Status};
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

impl IndexScan {
    /// The scans that together return all runs of the list, except for a root.
    pub(super) fn all(query: &RunQuery) -> Vec<Self> {
        let mut statuses = query.statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        if let Some(mut scan) = Self::of_selective_index(query) {
            scan.filter_rows_by_status(&statuses);
            scan.filter_rows_by_workflow(query);
            scan.filter_rows_by_other_fields(query);
            return vec![scan];
        }
        let mut scans: Vec<Self> = match &query.workflow {
            _ if !statuses.is_empty() => {
                statuses.iter().map(|status| Self::of_status(query, *status)).collect()
            }
            Some(workflow) => {
                let mut scan = Self::new("runs INDEXED BY runs_by_workflow");
                scan.filter_index("workflow = ", workflow.to_string());
                vec![scan]
            }
            None => vec![Self::new("runs")],
        };
        scans.iter_mut().for_each(|scan| scan.filter_rows_by_other_fields(query));
        scans
    }

    fn new(source: &'static str) -> Self {
        let (index_filters, index_values, row_filters, row_values) = Default::default();
        Self { source, join: "", id: "id", index_filters, index_values, row_filters, row_values }
    }

    /// The scan by parent, root, marks, flag or tag, if the query has one: these select few of all runs.
    fn of_selective_index(query: &RunQuery) -> Option<Self> {
        if let Some(parent) = query.parent {
            let mut scan = Self::new("runs INDEXED BY runs_by_parent");
            scan.filter_index("parent = ", parent.to_string());
            return Some(scan);
        }
        if let Some(root) = query.root {
            let mut scan = Self::new("runs INDEXED BY runs_by_root");
            scan.filter_index("root = ", root.to_string());
            return Some(scan);
        }
        if !query.marks.is_empty() {
            let mut scan = Self::new("runs INDEXED BY runs_marked");
            scan.index_filters.push("marks <> 0".into());
            return Some(scan);
        }
        if let Some(scan) = query.flag.map(Self::of_flag) {
            return Some(scan);
        }
        let (name, value) = query.tags.first_key_value()?;
        let mut scan = Self::new("tags AS tag INDEXED BY tags_by_value");
        // SQLite does not reorder a cross join, so the rows keep the order of the tag's index.
        scan.join = " CROSS JOIN runs ON runs.id = tag.run";
        scan.id = "tag.run";
        scan.filter_index("tag.name = ", name.clone());
        scan.filter_index("tag.value = ", value.clone());
        Some(scan)
    }

    fn of_flag(flag: FlagFilter) -> Self {
        let (source, filter) = match flag {
            FlagFilter::Retrying => ("runs INDEXED BY runs_retrying", "retrying"),
            _ => ("runs INDEXED BY runs_cancelling", "cancel_requested AND ended_at IS NULL"),
        };
        let mut scan = Self::new(source);
        scan.index_filters.push(filter.into());
        scan
    }

    fn of_status(query: &RunQuery, status: Status) -> Self {
        let mut scan = Self::new("runs INDEXED BY runs_by_status");
        scan.index_filters.push(format!("status = '{status}'"));
        scan.filter_rows_by_workflow(query);
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

    fn filter_rows(&mut self, comparison: &str, value: impl Into<Value>) {
        let value = self.bind(value);
        self.row_filters.push(format!("{comparison}{value}"));
    }

    fn filter_rows_by_status(&mut self, statuses: &[Status]) {
        if !statuses.is_empty() {
            let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
            self.row_filters.push(format!("status IN ({})", list.join(", ")));
        }
    }

    fn filter_rows_by_workflow(&mut self, query: &RunQuery) {
        if let Some(workflow) = &query.workflow {
            self.filter_rows("workflow = ", workflow.to_string());
        }
    }

    /// Adds the conditions that no index supports.
    fn filter_rows_by_other_fields(&mut self, query: &RunQuery) {
        if !query.marks.is_empty() {
            self.row_filters.push(format!("marks & {} <> 0", query.marks.bits()));
        }
        if let Some(queue) = &query.queue {
            self.filter_rows("queue = ", queue.to_string());
        }
        let steps = query.leaves_out_queued_steps().then_some(STEP_PREFIX);
        for left_out in steps.into_iter().chain(query.leaves_out_built_in().then_some(BUILT_IN_PREFIX)) {
            let prefix = self.bind(left_out.to_owned());
            self.row_filters.push(format!("substr(workflow, 1, {}) <> {prefix}", left_out.len()));
        }
        // The scan of the tags' index already selects the first tag.
        let selected_by_index = usize::from(self.id == "tag.run");
        for (name, value) in query.tags.iter().skip(selected_by_index) {
            let (name, value) = (self.bind(name.clone()), self.bind(value.clone()));
            let tagged =
                format!("SELECT 1 FROM tags WHERE run = runs.id AND name = {name} AND value = {value}");
            self.row_filters.push(format!("EXISTS ({tagged})"));
        }
        if let Some(from) = query.created_from {
            self.filter_rows("created_at >= ", from.as_micros());
        }
        if let Some(before) = query.created_before {
            self.filter_rows("created_at < ", before.as_micros());
        }
        if let Some(from) = query.ended_from {
            self.filter_rows("ended_at >= ", from.as_micros());
        }
        if let Some(before) = query.ended_before {
            self.filter_rows("ended_at < ", before.as_micros());
        }
        self.row_filters.extend(query.flag.map(|flag| match flag {
            FlagFilter::Retrying => "retrying AND status = 'waiting'".to_owned(),
            _ => "cancel_requested AND ended_at IS NULL".to_owned(),
        }));
        if let Some(text) = &query.text {
            let text = self.bind(text.to_lowercase());
            // `lower` of SQLite supports ASCII only. Rows with other letters pass this filter, and the query itself
            // checks them.
            self.row_filters.push(format!(
                "(instr(lower(runs.id), {text}) OR instr(lower(workflow), {text}) OR instr(lower(key), {text}) \
                 OR octet_length(workflow) > length(workflow) OR octet_length(key) > length(key))"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
