//! Pages of runs.
//!
//! A page is read from the index that has the shortest list, in order of ids; from several where one
//! cannot answer: each status has a list of its own, and a root is not among its descendants.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{Order, Page, RunId, RunQuery, RunView, Status};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, OptionalExtension, params_from_iter};

use crate::error::Refusal;
use crate::row::{run_view, word};
use crate::sql;

/// A page of runs.
pub(crate) fn page(connection: &Connection, query: &RunQuery) -> Result<Page, Refusal> {
    let limit = query.limit.min(PAGE_RUNS_MAX);
    let mut runs = Vec::new();
    if let Some(key) = &query.key {
        runs.extend(by_key(connection, key)?);
    } else {
        for part in Part::all(query) {
            part.read(connection, query, limit, &mut runs)?;
        }
        if let Some(root) = query.root {
            runs.extend(by_id(connection, root)?);
        }
    }
    runs.retain(|run| query.wants(run));
    runs.sort_by_key(|run| run.id);
    if !is_rising(query) {
        runs.reverse();
    }
    Ok(query.page(runs, limit))
}

fn by_id(connection: &Connection, run: RunId) -> Result<Option<RunView>, Error> {
    connection.prepare_cached(sql::RUN_VIEW)?.query_row([run.to_string()], run_view).optional()
}

fn by_key(connection: &Connection, key: &str) -> Result<Option<RunView>, Error> {
    let mut statement = connection.prepare_cached(sql::RUN_BY_KEY)?;
    let id = statement.query_row([key], |row| word::<RunId>(row, 0)).optional()?;
    id.map_or(Ok(None), |id| by_id(connection, id))
}

/// Whether the list is walked from the lowest id on. It is walked backwards when only its end is given.
fn is_rising(query: &RunQuery) -> bool {
    let is_backwards = query.before.is_some() && query.after.is_none();
    (query.order == Order::OldestFirst) != is_backwards
}

/// A part of a list, which one index has in order.
struct Part {
    from: &'static str,
    /// The column with the run's id in that index.
    id: &'static str,
    filters: Vec<String>,
    values: Vec<Value>,
}

impl Part {
    /// The parts that have all the runs of the list between them, except a root.
    fn all(query: &RunQuery) -> Vec<Self> {
        let mut statuses = query.statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        if let Some(mut part) = Self::of_few(query) {
            part.filter_statuses(&statuses);
            part.filter_workflow(query, "workflow");
            return vec![part];
        }
        if statuses.is_empty() {
            let mut part = Self::new("runs", "id");
            part.filter_workflow(query, "workflow");
            return vec![part];
        }
        statuses.into_iter().map(|status| Self::of_status(query, status)).collect()
    }

    fn new(from: &'static str, id: &'static str) -> Self {
        // The first parameter is the limit.
        Self { from, id, filters: Vec::new(), values: vec![Value::Null] }
    }

    /// The list of a parent, a root or a tag, which has few of all runs.
    fn of_few(query: &RunQuery) -> Option<Self> {
        if let Some(parent) = query.parent {
            let mut part = Self::new("runs INDEXED BY runs_by_parent", "id");
            part.filter("parent = ", parent.to_string());
            return Some(part);
        }
        if let Some(root) = query.root {
            let mut part = Self::new("runs INDEXED BY runs_by_root", "id");
            part.filter("root = ", root.to_string());
            return Some(part);
        }
        let (name, value) = query.tags.first_key_value()?;
        // A cross join is not reordered: the tag's index gives the order of the list.
        let from = "tags AS tag INDEXED BY tags_by_value CROSS JOIN runs ON runs.id = tag.run";
        let mut part = Self::new(from, "tag.run");
        part.filter("tag.name = ", name.clone());
        part.filter("tag.value = ", value.clone());
        Some(part)
    }

    fn of_status(query: &RunQuery, status: Status) -> Self {
        let mut part = Self::new("runs", "id");
        part.filter_statuses(&[status]);
        if status == Status::Completed {
            part.filter_workflow(query, "workflow");
        } else {
            // Repeats the condition of the index, which SQLite does not derive by itself.
            part.filters.push("status <> 'completed'".into());
            // The plus keeps SQLite from the workflow's index: the status has the shorter list.
            part.filter_workflow(query, "+workflow");
        }
        part
    }

    /// Reads what the page may need of the part.
    fn read(
        mut self,
        connection: &Connection,
        query: &RunQuery,
        limit: usize,
        runs: &mut Vec<RunView>,
    ) -> Result<(), Error> {
        // Whether a text is in a run is not for SQL alone to say, so that the rows cannot be counted there.
        let rows_max = if query.text.is_some() { -1 } else { limit as i64 + 1 };
        self.values[0] = Value::Integer(rows_max);
        let mut statement = connection.prepare_cached(&self.statement(query))?;
        let rows = statement.query_map(params_from_iter(&self.values), run_view)?;
        let wanted = rows.filter(|run| run.as_ref().map_or(true, |run| query.wants(run)));
        for run in wanted.take(limit + 1) {
            runs.push(run?);
        }
        Ok(())
    }

    /// Adds the other filters, and answers the whole statement.
    fn statement(&mut self, query: &RunQuery) -> String {
        self.filter_rest(query);
        self.filter_place(query);
        let filters = if self.filters.is_empty() { "true".into() } else { self.filters.join(" AND ") };
        sql::RUNS_PAGE
            .replace("{from}", self.from)
            .replace("{filters}", &filters)
            .replace("{id}", self.id)
            .replace("{order}", if is_rising(query) { "ASC" } else { "DESC" })
    }

    /// Adds a parameter, and answers how the statement calls it.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("?{}", self.values.len())
    }

    fn filter(&mut self, comparison: &str, value: impl Into<Value>) {
        let value = self.bind(value);
        self.filters.push(format!("{comparison}{value}"));
    }

    fn filter_statuses(&mut self, statuses: &[Status]) {
        match statuses {
            [] => {}
            [status] => self.filters.push(format!("status = '{status}'")),
            _ => {
                let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
                self.filters.push(format!("status IN ({})", list.join(", ")));
            }
        }
    }

    fn filter_workflow(&mut self, query: &RunQuery, column: &str) {
        if let Some(workflow) = &query.workflow {
            self.filter(&format!("{column} = "), workflow.to_string());
        }
    }

    /// Adds the filters that no index helps with.
    fn filter_rest(&mut self, query: &RunQuery) {
        for (name, value) in &query.tags {
            let (name, value) = (self.bind(name.clone()), self.bind(value.clone()));
            let tagged =
                format!("SELECT 1 FROM tags WHERE run = runs.id AND name = {name} AND value = {value}");
            self.filters.push(format!("EXISTS ({tagged})"));
        }
        if let Some(from) = query.created_from {
            self.filter("created_at >= ", from.as_micros());
        }
        if let Some(before) = query.created_before {
            self.filter("created_at < ", before.as_micros());
        }
        if let Some(text) = &query.text {
            let text = self.bind(text.to_lowercase());
            // SQLite lowers ASCII only: what has other letters is left for the query itself to tell.
            self.filters.push(format!(
                "(instr(lower(runs.id), {text}) OR instr(lower(workflow), {text}) OR instr(lower(key), {text}) \
                 OR octet_length(workflow) > length(workflow) OR octet_length(key) > length(key))"
            ));
        }
    }

    /// Adds where the page begins and ends.
    fn filter_place(&mut self, query: &RunQuery) {
        let (behind, in_front) = match query.order {
            Order::NewestFirst => ("<", ">"),
            Order::OldestFirst => (">", "<"),
        };
        for (run, side) in [(query.after, behind), (query.before, in_front)] {
            if let Some(run) = run {
                self.filter(&format!("{} {side} ", self.id), run.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite would read the parts of the list.
    fn plans(query: &RunQuery) -> Vec<String> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../migrations/0001_runs.sql")).unwrap();
        let mut plans = Vec::new();
        for mut part in Part::all(query) {
            let sql = format!("EXPLAIN QUERY PLAN {}", part.statement(query));
            let mut statement = connection.prepare(&sql).unwrap();
            let steps = statement.query_map(params_from_iter(&part.values), |row| row.get(3)).unwrap();
            plans.push(steps.collect::<Result<Vec<String>, _>>().unwrap().join("; "));
        }
        plans
    }

    #[test]
    fn every_list_comes_in_the_order_of_its_index() {
        let run = Some(RunId::from_bits(1));
        let workflow = Some("w".into());
        let statuses = vec![Status::Waiting, Status::Completed];
        let tags: outlast_core::Tags = [("a".into(), "1".into()), ("b".into(), "2".into())].into();
        let few = RunQuery { statuses, workflow, after: run, ..RunQuery::default() };
        let cases = [
            (RunQuery { before: run, ..RunQuery::default() }, "runs USING PRIMARY KEY (id>?)"),
            (RunQuery { parent: run, ..few.clone() }, "INDEX runs_by_parent (parent=? AND id<?)"),
            (RunQuery { root: run, ..few.clone() }, "INDEX runs_by_root (root=? AND id<?)"),
            (RunQuery { tags, ..few.clone() }, "INDEX tags_by_value (name=? AND value=? AND run<?)"),
            (few.clone(), "INDEX runs_by_status (status=? AND id<?)"),
            (RunQuery { text: Some("x".into()), statuses: Vec::new(), ..few }, "INDEX runs_by_workflow"),
        ];
        for (query, index) in cases {
            let plans = plans(&query);
            assert!(plans[0].contains(index), "{query:?}: {plans:?}");
            assert!(!plans.iter().any(|plan| plan.contains("TEMP B-TREE")), "{query:?}: {plans:?}");
        }
    }
}
