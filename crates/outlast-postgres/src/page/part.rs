//! A part of a list, which one index has in order.

use outlast_core::queue::STEP_PREFIX;
use outlast_core::{RunId, RunQuery, RunView, Status, WorldError};
use tokio_postgres::types::ToSql;

use super::{Place, views};
use crate::error::corrupt;
use crate::message::Values1;
use crate::row::word;
use crate::store::Store;
use crate::text::stored;

type Value = Box<dyn ToSql + Sync + Send>;

/// A part of a list, which one index has in order.
#[derive(Debug)]
pub(super) struct Part {
    /// What is walked.
    walk: String,
    /// The column with the run's id in the index.
    id: &'static str,
    /// The columns that the index leads with, and their values.
    lead: Vec<(&'static str, String)>,
    /// The schema, as statements write it.
    schema: String,
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
    pub(super) fn all(query: &RunQuery, schema: &str) -> Vec<Self> {
        let mut statuses = query.statuses.clone();
        statuses.sort_unstable();
        statuses.dedup();
        if let Some(mut part) = Self::of_few(query, schema) {
            part.look_at_statuses(&statuses);
            part.look_at_workflow(query);
            part.look_at_rest(query);
            return vec![part];
        }
        let mut parts: Vec<Self> = match &query.workflow {
            _ if !statuses.is_empty() => {
                statuses.iter().map(|status| Self::of_status(query, schema, *status)).collect()
            }
            Some(workflow) => {
                let mut part = Self::new(schema);
                part.lead_by("runs.workflow", stored(workflow).into_owned());
                vec![part]
            }
            None => vec![Self::new(schema)],
        };
        parts.iter_mut().for_each(|part| part.look_at_rest(query));
        parts
    }

    fn new(schema: &str) -> Self {
        let (filters, values, looks, look_values) = Default::default();
        let walk = format!("{schema}.runs AS runs");
        Self {
            walk,
            id: "runs.id",
            lead: Vec::new(),
            schema: schema.to_owned(),
            filters,
            values,
            looks,
            look_values,
        }
    }

    /// The list of a parent, a root or a tag, which has few of all runs.
    fn of_few(query: &RunQuery, schema: &str) -> Option<Self> {
        let mut part = Self::new(schema);
        if let Some(parent) = query.parent {
            part.lead_by("runs.parent", parent.to_string());
            part.filters.push("runs.parent IS NOT NULL".into());
            return Some(part);
        }
        if let Some(root) = query.root {
            part.lead_by("runs.root", root.to_string());
            part.filters.push("runs.root IS NOT NULL".into());
            return Some(part);
        }
        let (name, value) = query.tags.first_key_value()?;
        // The offset keeps what is asked of the runs from leading: the tags come first.
        part.walk = format!(
            "{schema}.tags AS tag CROSS JOIN LATERAL (SELECT * FROM {schema}.runs WHERE id = tag.run OFFSET 0) AS runs"
        );
        part.id = "tag.run";
        part.lead_by("tag.name", stored(name).into_owned());
        part.lead_by("tag.value", stored(value).into_owned());
        Some(part)
    }

    fn of_status(query: &RunQuery, schema: &str, status: Status) -> Self {
        let mut part = Self::new(schema);
        part.lead.push(("runs.status", format!("'{status}'")));
        part.look_at_workflow(query);
        part
    }

    /// Whether it has filters that its index does not help with.
    pub(super) fn needs_looks(&self) -> bool {
        !self.looks.is_empty()
    }

    /// The run that is the last of so many in the place; `None` when there are fewer.
    pub(super) async fn edge(
        &self,
        store: &Store,
        place: &Place,
        looks_max: usize,
    ) -> Result<Option<RunId>, WorldError> {
        let sql = self.statement(&store.sql.runs_edge, place, &[]);
        let first = self.first_values(place, looks_max as i64 - 1);
        let values: Vec<Values1<'_>> =
            first.iter().chain(&self.values).map(|value| value.as_ref() as Values1<'_>).collect();
        let rows = store.call(&sql, &values).await?;
        rows.first().map(|row| word(row, 0)).transpose().map_err(|why| corrupt(&store.place, &why))
    }

    /// Reads at most so many of the wanted runs of each part in the place. It is one statement: a run that changes its
    /// status is in one part or the other, but between two statements it could be in neither.
    pub(super) async fn read_all(
        parts: &[Self],
        store: &Store,
        query: &RunQuery,
        place: &Place,
        runs_max: usize,
    ) -> Result<Vec<RunView>, WorldError> {
        // All parts of a query have the same parameters: those of statuses have none of their own.
        let Some(first_part) = parts.first() else { return Ok(Vec::new()) };
        // Whether a text is in a run is not for SQL alone to say, so that the rows cannot be counted there;
        // the place is cut to what may be looked at.
        let rows_max = if query.text.is_some() { i64::MAX } else { runs_max as i64 };
        let statements: Vec<String> =
            parts.iter().map(|part| part.statement(&store.sql.runs_page, place, &part.looks)).collect();
        let sql = match statements.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join("\n) UNION ALL (\n")),
        };
        let first = first_part.first_values(place, rows_max);
        let all = first.iter().chain(&first_part.values).chain(&first_part.look_values);
        let values: Vec<Values1<'_>> = all.map(|value| value.as_ref() as Values1<'_>).collect();
        let rows = store.call(&sql, &values).await?;
        Ok(views(store, &rows)?.into_iter().filter(|run| query.wants(run)).collect())
    }

    fn first_values(&self, place: &Place, rows: i64) -> [Value; FIRST_VALUES] {
        let [low, high] =
            [*place.ids.start(), *place.ids.end()].map(|bits| RunId::from_bits(bits).to_string());
        [Box::new(rows), Box::new(low), Box::new(high)]
    }

    /// A statement about the part.
    fn statement(&self, sql: &str, place: &Place, looks: &[String]) -> String {
        let order = if place.is_rising { "ASC" } else { "DESC" };
        let id = self.id;
        // Written as rows, so that no other index has them in order: Postgres cannot know that the newest runs of
        // all may be of another status or workflow.
        let columns: String = self.lead.iter().map(|(column, _)| format!("{column}, ")).collect();
        let values: String = self.lead.iter().map(|(_, value)| format!("{value}, ")).collect();
        let ids = format!("({columns}{id}) >= ({values}$2) AND ({columns}{id}) <= ({values}$3)");
        let sort: String = self.lead.iter().map(|(column, _)| format!("{column} {order}, ")).collect();
        let sort = format!("{sort}{id} {order}");
        let filters: Vec<&str> =
            std::iter::once(&ids).chain(&self.filters).chain(looks).map(String::as_str).collect();
        sql.replace("{walk}", &self.walk)
            .replace("{filters}", &filters.join(" AND "))
            .replace("{id}", id)
            .replace("{sort}", &sort)
    }

    /// Adds a column that the index leads with; all of these come before the first look.
    fn lead_by(&mut self, column: &'static str, value: String) {
        self.values.push(Box::new(value));
        self.lead.push((column, format!("${}", FIRST_VALUES + self.values.len())));
    }

    /// Adds a parameter of a look, and answers how the statement calls it.
    fn bind(&mut self, value: impl ToSql + Sync + Send + 'static) -> String {
        self.look_values.push(Box::new(value));
        format!("${}", FIRST_VALUES + self.values.len() + self.look_values.len())
    }

    fn look(&mut self, comparison: &str, value: impl ToSql + Sync + Send + 'static) {
        let value = self.bind(value);
        self.looks.push(format!("{comparison}{value}"));
    }

    fn look_at_statuses(&mut self, statuses: &[Status]) {
        if !statuses.is_empty() {
            let list: Vec<String> = statuses.iter().map(|status| format!("'{status}'")).collect();
            self.looks.push(format!("runs.status IN ({})", list.join(", ")));
        }
    }

    fn look_at_workflow(&mut self, query: &RunQuery) {
        if let Some(workflow) = &query.workflow {
            self.look("runs.workflow = ", stored(workflow).into_owned());
        }
    }

    /// Adds the filters that have no list of their own.
    fn look_at_rest(&mut self, query: &RunQuery) {
        let is_walked = usize::from(self.id == "tag.run");
        for (name, value) in query.tags.iter().skip(is_walked) {
            let (name, value) = (self.bind(stored(name).into_owned()), self.bind(stored(value).into_owned()));
            self.looks.push(format!(
                "EXISTS (SELECT 1 FROM {}.tags t WHERE t.run = runs.id AND t.name = {name} AND t.value = {value})",
                self.schema
            ));
        }
        if let Some(queue) = &query.queue {
            self.look("runs.queue = ", stored(queue).into_owned());
        }
        if query.leaves_out_queued_steps() {
            let prefix = self.bind(STEP_PREFIX.to_owned());
            self.looks.push(format!("NOT starts_with(runs.workflow, {prefix})"));
        }
        if let Some(from) = query.created_from {
            self.look("runs.created_at >= ", from.as_micros());
        }
        if let Some(before) = query.created_before {
            self.look("runs.created_at < ", before.as_micros());
        }
        if let Some(text) = &query.text {
            let text = self.bind(stored(&text.to_lowercase()).into_owned());
            // What has other letters than ASCII is left for the query itself to tell.
            self.looks.push(format!(
                "(strpos(lower(runs.id), {text}) > 0 OR strpos(lower(runs.workflow), {text}) > 0 \
                 OR strpos(lower(runs.key), {text}) > 0 OR octet_length(runs.workflow) > length(runs.workflow) \
                 OR octet_length(runs.key) > length(runs.key))"
            ));
        }
    }
}
