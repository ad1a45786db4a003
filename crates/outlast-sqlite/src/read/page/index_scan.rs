//! A part of a list, which one index has in order.

use outlast_core::queue::STEP_PREFIX;
use outlast_core::{RunId, RunQuery, RunView, Status};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, OptionalExtension, params_from_iter};

use super::Place;
use crate::schema::row::{run_view, word};
use crate::schema::sql;

/// A part of a list, which one index has in order.
#[derive(Debug)]
pub(super) struct Part {
    /// The index.
    walk: &'static str,
    /// How to come from there to the run's row, if it is not there.
    join: &'static str,
    /// The column with the run's id in that index.
    id: &'static str,
    /// What the index helps with.
    filters: Vec<String>,
    values: Vec<Value>,
    /// What it does not help with.
    looks: Vec<String>,
    look_values: Vec<Value>,
}

/// The parameters that every statement begins with: how many rows, the lowest and the highest id.
const FIRST_VALUES: usize = 3;

impl Part {
    /// The parts that have all the runs of the list between them, except a root.
    pub(super) fn all(query: &RunQuery) -> Vec<Self> {
        let mut statuses = query.statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        if let Some(mut part) = Self::of_few(query) {
            part.look_at_statuses(&statuses);
            part.look_at_workflow(query);
            part.look_at_rest(query);
            return vec![part];
        }
        let mut parts: Vec<Self> = match &query.workflow {
            _ if !statuses.is_empty() => {
                statuses.iter().map(|status| Self::of_status(query, *status)).collect()
            }
            Some(workflow) => {
                let mut part = Self::new("runs INDEXED BY runs_by_workflow");
                part.filter("workflow = ", workflow.to_string());
                vec![part]
            }
            None => vec![Self::new("runs")],
        };
        parts.iter_mut().for_each(|part| part.look_at_rest(query));
        parts
    }

    fn new(walk: &'static str) -> Self {
        let (filters, values, looks, look_values) = Default::default();
        Self { walk, join: "", id: "id", filters, values, looks, look_values }
    }

    /// The list of a parent, a root or a tag, which has few of all runs.
    fn of_few(query: &RunQuery) -> Option<Self> {
        if let Some(parent) = query.parent {
            let mut part = Self::new("runs INDEXED BY runs_by_parent");
            part.filter("parent = ", parent.to_string());
            return Some(part);
        }
        if let Some(root) = query.root {
            let mut part = Self::new("runs INDEXED BY runs_by_root");
            part.filter("root = ", root.to_string());
            return Some(part);
        }
        let (name, value) = query.tags.first_key_value()?;
        let mut part = Self::new("tags AS tag INDEXED BY tags_by_value");
        // A cross join is not reordered: the tag's index gives the order of the list.
        part.join = " CROSS JOIN runs ON runs.id = tag.run";
        part.id = "tag.run";
        part.filter("tag.name = ", name.clone());
        part.filter("tag.value = ", value.clone());
        Some(part)
    }

    fn of_status(query: &RunQuery, status: Status) -> Self {
        let mut part = Self::new("runs INDEXED BY runs_by_status");
        part.filters.push(format!("status = '{status}'"));
        part.look_at_workflow(query);
        part
    }

    /// Whether it has filters that its index does not help with.
    pub(super) fn needs_looks(&self) -> bool {
        !self.looks.is_empty()
    }

    /// The run that is the last of so many in the place; `None` when there are fewer.
    pub(super) fn edge(
        &self,
        connection: &Connection,
        place: &Place,
        looks_max: usize,
    ) -> Result<Option<RunId>, Error> {
        let mut statement = connection.prepare_cached(&self.statement(sql::RUNS_EDGE, place, &[]))?;
        let values = self.values(place, looks_max as i64 - 1);
        statement.query_row(params_from_iter(values), |row| word(row, 0)).optional()
    }

    /// Reads at most so many of the wanted runs in the place.
    pub(super) fn read(
        &self,
        connection: &Connection,
        query: &RunQuery,
        place: &Place,
        runs_max: usize,
        runs: &mut Vec<RunView>,
    ) -> Result<(), Error> {
        // Whether a text is in a run is not for SQL alone to say, so that the rows cannot be counted there.
        let rows_max = if query.text.is_some() { -1 } else { runs_max as i64 };
        let mut statement =
            connection.prepare_cached(&self.statement(&sql::RUNS_PAGE, place, &self.looks))?;
        let values = self.values(place, rows_max).chain(self.look_values.iter().cloned());
        let rows = statement.query_map(params_from_iter(values), run_view)?;
        let wanted = rows.filter(|run| run.as_ref().map_or(true, |run| query.wants(run)));
        for run in wanted.take(runs_max) {
            runs.push(run?);
        }
        Ok(())
    }

    /// The parameters of a statement without looks.
    fn values(&self, place: &Place, rows: i64) -> impl Iterator<Item = Value> {
        let ids = [*place.ids.start(), *place.ids.end()];
        let ids = ids.map(|bits| Value::Text(RunId::from_bits(bits).to_string()));
        std::iter::once(Value::Integer(rows)).chain(ids).chain(self.values.iter().cloned())
    }

    /// A statement about the part.
    fn statement(&self, sql: &str, place: &Place, looks: &[String]) -> String {
        let ids = format!("{0} >= ?2 AND {0} <= ?3", self.id);
        let filters: Vec<&str> =
            std::iter::once(&ids).chain(&self.filters).chain(looks).map(String::as_str).collect();
        sql.replace("{walk}", self.walk)
            .replace("{join}", self.join)
            .replace("{filters}", &filters.join(" AND "))
            .replace("{id}", self.id)
            .replace("{order}", if place.is_rising { "ASC" } else { "DESC" })
    }

    /// Adds a filter that the index helps with; all of these come before the first look.
    fn filter(&mut self, comparison: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        self.filters.push(format!("{comparison}?{}", FIRST_VALUES + self.values.len()));
    }

    /// Adds a parameter of a look, and answers how the statement calls it.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.look_values.push(value.into());
        format!("?{}", FIRST_VALUES + self.values.len() + self.look_values.len())
    }

    fn look(&mut self, comparison: &str, value: impl Into<Value>) {
        let value = self.bind(value);
        self.looks.push(format!("{comparison}{value}"));
    }

    fn look_at_statuses(&mut self, statuses: &[Status]) {
        if !statuses.is_empty() {
            let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
            self.looks.push(format!("status IN ({})", list.join(", ")));
        }
    }

    fn look_at_workflow(&mut self, query: &RunQuery) {
        if let Some(workflow) = &query.workflow {
            self.look("workflow = ", workflow.to_string());
        }
    }

    /// Adds the filters that have no list of their own.
    fn look_at_rest(&mut self, query: &RunQuery) {
        if let Some(queue) = &query.queue {
            self.look("queue = ", queue.to_string());
        }
        if query.leaves_out_queued_steps() {
            let prefix = self.bind(STEP_PREFIX.to_owned());
            self.looks.push(format!("substr(workflow, 1, {}) <> {prefix}", STEP_PREFIX.len()));
        }
        let is_walked = usize::from(self.id == "tag.run");
        for (name, value) in query.tags.iter().skip(is_walked) {
            let (name, value) = (self.bind(name.clone()), self.bind(value.clone()));
            let tagged =
                format!("SELECT 1 FROM tags WHERE run = runs.id AND name = {name} AND value = {value}");
            self.looks.push(format!("EXISTS ({tagged})"));
        }
        if let Some(from) = query.created_from {
            self.look("created_at >= ", from.as_micros());
        }
        if let Some(before) = query.created_before {
            self.look("created_at < ", before.as_micros());
        }
        if let Some(text) = &query.text {
            let text = self.bind(text.to_lowercase());
            // SQLite lowers ASCII only: what has other letters is left for the query itself to tell.
            self.looks.push(format!(
                "(instr(lower(runs.id), {text}) OR instr(lower(workflow), {text}) OR instr(lower(key), {text}) \
                 OR octet_length(workflow) > length(workflow) OR octet_length(key) > length(key))"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
