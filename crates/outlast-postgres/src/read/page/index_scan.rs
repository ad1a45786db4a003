//! [`IndexScan`]: the part of a list of runs that one index contains in the order of ids.

use outlast_core::paging::IdRange;
use outlast_core::sql::{ListIndex, ListScan, RowFilter};
use outlast_core::{FlagFilter, RunId, RunQuery, RunView, WorldError};
use tokio_postgres::types::ToSql;

use super::read_views;
use crate::connection::database::{Database, Parameter};
use crate::encoding::row::parsed;
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;

type ScanValue = Box<dyn ToSql + Sync + Send>;

/// The scan of one index, with filters.
#[derive(Debug)]
pub(super) struct IndexScan {
    /// The tables that are read.
    source: String,
    /// The column with the run's id, which is the last of the index.
    id_column: &'static str,
    /// The columns before it in the index, and their values as SQL.
    leading_columns: Vec<(&'static str, String)>,
    /// The schema's name as a quoted identifier.
    schema: String,
    /// Conditions that the index implies, and the parameters of the leading columns.
    index_filters: Vec<String>,
    index_values: Vec<ScanValue>,
    /// Filters that the index does not support, and their parameters.
    row_filters: Vec<String>,
    row_filter_values: Vec<ScanValue>,
}

/// The number of parameters that every statement begins with: the number of rows, the lowest and the highest id.
const RANGE_PARAMETERS: usize = 3;

/// The condition for runs that were asked to stop and have not ended.
const IS_CANCELLING: &str = "runs.cancel_requested AND runs.ended_at IS NULL";

impl IndexScan {
    /// The scans that together contain all runs of the list, except a root.
    pub(super) fn all(query: &RunQuery, schema: &str) -> Vec<Self> {
        let scans = ListScan::all(query).into_iter();
        scans.flat_map(|scan| Self::of(scan, schema)).collect()
    }

    /// The scan of one index; those of two for the descendants of a root.
    fn of(ListScan { index, row_filters }: ListScan<'_>, schema: &str) -> Vec<Self> {
        let mut scans = match index {
            // The children of a root are only in the index of children, so that their rows have fewer index entries.
            ListIndex::Root(root) => {
                let mut children = Self::of_index(ListIndex::Parent(root), schema);
                children.index_filters.push("runs.root = runs.parent".into());
                vec![children, Self::of_index(index, schema)]
            }
            index => vec![Self::of_index(index, schema)],
        };
        for scan in &mut scans {
            row_filters.iter().for_each(|filter| scan.filter_rows(filter));
        }
        scans
    }

    /// A scan of all runs by id, without filters.
    fn new(schema: &str) -> Self {
        let (index_filters, index_values, row_filters, row_filter_values) = Default::default();
        let source = format!("{schema}.runs AS runs");
        Self {
            source,
            id_column: "runs.id",
            leading_columns: Vec::new(),
            schema: schema.to_owned(),
            index_filters,
            index_values,
            row_filters,
            row_filter_values,
        }
    }

    /// The scan of an index, without row filters.
    fn of_index(index: ListIndex<'_>, schema: &str) -> Self {
        let mut scan = Self::new(schema);
        match index {
            ListIndex::All => {}
            ListIndex::Parent(parent) => {
                scan.add_leading_column("runs.parent", parent.to_string());
                // The index contains only runs that have a parent, and Postgres uses it only if the query says so.
                scan.index_filters.push("runs.parent IS NOT NULL".into());
            }
            ListIndex::Root(root) => {
                scan.add_leading_column("runs.root", root.to_string());
                scan.index_filters.push("runs.root <> runs.parent".into());
            }
            ListIndex::Marked => scan.index_filters.push("runs.marks <> 0".into()),
            ListIndex::Flag(FlagFilter::Retrying) => scan.index_filters.push("runs.retrying".into()),
            ListIndex::Flag(_) => scan.index_filters.push(IS_CANCELLING.into()),
            ListIndex::Tag { name, value } => {
                // With `OFFSET 0` Postgres reads the tags first: filters of the runs cannot be moved into the subquery.
                scan.source = format!(
                    "{schema}.tags AS tag CROSS JOIN LATERAL (SELECT * FROM {schema}.runs WHERE id = tag.run OFFSET 0) AS runs"
                );
                scan.id_column = "tag.run";
                scan.add_leading_column("tag.name", escape_nul(name).into_owned());
                scan.add_leading_column("tag.value", escape_nul(value).into_owned());
            }
            ListIndex::Status(status) => {
                scan.leading_columns.push(("runs.status", format!("'{status}'")));
            }
            ListIndex::Workflow(workflow) => {
                scan.add_leading_column("runs.workflow", escape_nul(workflow).into_owned());
            }
        }
        scan
    }

    /// Whether it has filters that its index does not support.
    pub(super) fn has_row_filters(&self) -> bool {
        !self.row_filters.is_empty()
    }

    /// The last of the first `rows_max` runs in the range, before row filters; `None` if there are fewer.
    pub(super) async fn last_examined(
        &self,
        database: &Database,
        range: &IdRange,
        rows_max: usize,
    ) -> Result<Option<RunId>, WorldError> {
        let sql = self.fill_statement(&database.sql.runs_last_examined, range, &[]);
        let first = self.range_values(range, rows_max as i64 - 1);
        let values: Vec<Parameter<'_>> =
            first.iter().chain(&self.index_values).map(|value| value.as_ref() as Parameter<'_>).collect();
        let rows = database.call(&sql, &values).await?;
        rows.first().map(|row| parsed(row, 0)).transpose().map_err(|why| corrupt_error(&database.place, &why))
    }

    /// Reads at most `runs_max` matching runs of each scan in the range. It is one statement: a run that changes its
    /// status between two statements could be missing in both.
    pub(super) async fn read_all(
        scans: &[Self],
        database: &Database,
        query: &RunQuery,
        range: &IdRange,
        runs_max: usize,
    ) -> Result<Vec<RunView>, WorldError> {
        // All scans of a query have the same parameters: a status is not a parameter.
        let Some(first_scan) = scans.first() else { return Ok(Vec::new()) };
        // SQL cannot decide exactly whether a run contains a text, so it must not limit the rows. The range limits
        // them.
        let rows_max = if query.text.is_some() { i64::MAX } else { runs_max as i64 };
        let statements: Vec<String> = scans
            .iter()
            .map(|scan| scan.fill_statement(&database.sql.runs_page, range, &scan.row_filters))
            .collect();
        let sql = match statements.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join("\n) UNION ALL (\n")),
        };
        let first = first_scan.range_values(range, rows_max);
        let all = first.iter().chain(&first_scan.index_values).chain(&first_scan.row_filter_values);
        let values: Vec<Parameter<'_>> = all.map(|value| value.as_ref() as Parameter<'_>).collect();
        let rows = database.call(&sql, &values).await?;
        Ok(read_views(database, &rows)?.into_iter().filter(|run| query.wants(run)).collect())
    }

    /// The parameters that every statement begins with.
    fn range_values(&self, range: &IdRange, rows: i64) -> [ScanValue; RANGE_PARAMETERS] {
        let [low, high] = range.bounds().map(|run| run.to_string());
        [Box::new(rows), Box::new(low), Box::new(high)]
    }

    /// Replaces the placeholders of a statement by this scan.
    fn fill_statement(&self, sql: &str, range: &IdRange, row_filters: &[String]) -> String {
        let order = if range.is_ascending { "ASC" } else { "DESC" };
        let id_column = self.id_column;
        // Compare and sort by all columns of the index, as row values. With a condition on the id alone, Postgres may
        // scan the primary key instead, in the hope that some of the first runs have this status or workflow.
        let columns: String = self.leading_columns.iter().map(|(column, _)| format!("{column}, ")).collect();
        let leading_values: String =
            self.leading_columns.iter().map(|(_, value)| format!("{value}, ")).collect();
        let ids = format!(
            "({columns}{id_column}) >= ({leading_values}$2) AND ({columns}{id_column}) <= ({leading_values}$3)"
        );
        let sort: String =
            self.leading_columns.iter().map(|(column, _)| format!("{column} {order}, ")).collect();
        let sort = format!("{sort}{id_column} {order}");
        let filters: Vec<&str> =
            std::iter::once(&ids).chain(&self.index_filters).chain(row_filters).map(String::as_str).collect();
        sql.replace("{source}", &self.source)
            .replace("{filters}", &filters.join(" AND "))
            .replace("{id_column}", id_column)
            .replace("{sort}", &sort)
    }

    /// Adds a leading column of the index. All of them must be added before the first row filter.
    fn add_leading_column(&mut self, column: &'static str, value: String) {
        self.index_values.push(Box::new(value));
        self.leading_columns.push((column, format!("${}", RANGE_PARAMETERS + self.index_values.len())));
    }

    /// Adds a parameter of a row filter. Returns its name in the statement, for example `$4`.
    fn bind(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.row_filter_values.push(Box::new(value));
        format!("${}", RANGE_PARAMETERS + self.index_values.len() + self.row_filter_values.len())
    }

    /// Adds a parameter that is a text which somebody chose.
    fn bind_text(&mut self, text: &str) -> String {
        self.bind(escape_nul(text).into_owned())
    }

    /// Adds a condition that the index does not support.
    fn filter_rows(&mut self, filter: &RowFilter<'_>) {
        let condition = match filter {
            RowFilter::Statuses(statuses) => {
                let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
                format!("runs.status IN ({})", list.join(", "))
            }
            RowFilter::Workflow(workflow) => format!("runs.workflow = {}", self.bind_text(workflow)),
            RowFilter::Marks(marks) => format!("runs.marks & {} <> 0", marks.bits()),
            RowFilter::Queue(queue) => format!("runs.queue = {}", self.bind_text(queue)),
            RowFilter::NotPrefix(prefix) => {
                format!("NOT starts_with(runs.workflow, {})", self.bind_text(prefix))
            }
            RowFilter::Tag { name, value } => {
                let (name, value) = (self.bind_text(name), self.bind_text(value));
                format!(
                    "EXISTS (SELECT 1 FROM {}.tags t WHERE t.run = runs.id AND t.name = {name} AND t.value = {value})",
                    self.schema
                )
            }
            RowFilter::CreatedFrom(from) => format!("runs.created_at >= {}", self.bind(from.as_micros())),
            RowFilter::CreatedBefore(before) => {
                format!("runs.created_at < {}", self.bind(before.as_micros()))
            }
            RowFilter::EndedFrom(from) => format!("runs.ended_at >= {}", self.bind(from.as_micros())),
            RowFilter::EndedBefore(before) => format!("runs.ended_at < {}", self.bind(before.as_micros())),
            RowFilter::Flag(FlagFilter::Retrying) => "runs.retrying AND runs.status = 'waiting'".to_owned(),
            RowFilter::Flag(_) => IS_CANCELLING.to_owned(),
            RowFilter::Text(text) => {
                let text = self.bind_text(text);
                // Texts with characters outside ASCII pass this filter; `RunQuery::wants` decides about them.
                format!(
                    "(strpos(lower(runs.id), {text}) > 0 OR strpos(lower(runs.workflow), {text}) > 0 \
                     OR strpos(lower(runs.key), {text}) > 0 OR octet_length(runs.workflow) > length(runs.workflow) \
                     OR octet_length(runs.key) > length(runs.key))"
                )
            }
        };
        self.row_filters.push(condition);
    }
}
