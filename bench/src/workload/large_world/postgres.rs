//! Copies in a schema of a database.

use std::ops::Range;

use super::{CHILD_EVERY, ColumnContent, LargeWorldShape, ModelRuns, RowCopier, TAG};
use crate::Result;
use crate::server::{Database, Sql};

/// The tables of one schema, on a connection that does not wait for the disk.
#[derive(Debug)]
pub(super) struct PostgresTables {
    sql: Sql,
    schema: String,
    copy_runs: String,
    copy_turns: String,
}

impl PostgresTables {
    pub(super) fn of(database: &Database, schema: &str) -> Result<Self> {
        let mut sql = Sql::connect(&database.url())?;
        sql.run("SET synchronous_commit = off")?;
        let runs = columns(&mut sql, schema, "runs")?;
        let turns = columns(&mut sql, schema, "turns")?;
        let (copy_runs, copy_turns) = (copy_runs(schema, &runs), copy_turns(schema, &turns));
        Ok(Self { sql, schema: schema.into(), copy_runs, copy_turns })
    }

    /// Copies one model to all of these numbers.
    fn copy_model(
        &mut self,
        shape: &LargeWorldShape,
        numbers: Range<usize>,
        models: ModelRuns,
        of: &str,
    ) -> Result<()> {
        let ids: Vec<String> = numbers.clone().map(|number| shape.id(number).to_string()).collect();
        let ats: Vec<i64> = numbers.clone().map(|number| shape.at(number).as_micros()).collect();
        let parent = models.ended.to_string();
        let is_child = |number: usize| number.is_multiple_of(CHILD_EVERY);
        let parents: Vec<Option<&str>> =
            numbers.clone().map(|number| is_child(number).then_some(&*parent)).collect();
        let family: Vec<String> =
            numbers.filter(|number| is_child(*number)).map(|number| shape.id(number).to_string()).collect();
        let Self { sql, schema, copy_runs, copy_turns } = self;
        let tags = format!("INSERT INTO {schema}.tags (run, name, value) SELECT unnest($1::text[]), $2, $3");
        sql.with(async |client| {
            let transaction = client.transaction().await?;
            transaction.execute(copy_runs.as_str(), &[&ids, &ats, &parents, &of]).await?;
            transaction.execute(copy_turns.as_str(), &[&ids, &ats, &of]).await?;
            transaction.execute(&tags, &[&family, &TAG.0, &TAG.1]).await?;
            transaction.commit().await
        })
    }
}

impl RowCopier for PostgresTables {
    fn copy(&mut self, shape: &LargeWorldShape, numbers: Range<usize>, models: ModelRuns) -> Result<()> {
        let middle = shape.finished.clamp(numbers.start, numbers.end);
        self.copy_model(shape, numbers.start..middle, models, &models.ended.to_string())?;
        self.copy_model(shape, middle..numbers.end, models, &models.asleep.to_string())
    }

    fn finish(&mut self, shape: &LargeWorldShape) -> Result<()> {
        let LargeWorldShape { finished, waiting, .. } = shape;
        let schema = &self.schema;
        // The ids have exactly the time of the starts. A server that is not busy has collected its
        // statistics, and has written what it knows to the disk.
        self.sql.run(&format!(
            "INSERT INTO {schema}.counts AS counts (status, slot, n) \
             VALUES ('completed', 0, {finished}), ('waiting', 0, {waiting}) \
             ON CONFLICT (status, slot) DO UPDATE SET n = counts.n + excluded.n;
             UPDATE {schema}.skew SET lowest = least(lowest, 0), highest = greatest(highest, 0)"
        ))?;
        for table in ["runs", "turns", "tags"] {
            self.sql.run(&format!("VACUUM (ANALYZE) {schema}.{table}"))?;
        }
        self.sql.run("CHECKPOINT")
    }
}

/// The columns of a table, in their order.
fn columns(sql: &mut Sql, schema: &str, table: &str) -> Result<Vec<String>> {
    let query = "SELECT column_name::text FROM information_schema.columns \
                 WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position";
    let rows = sql.with(async |client| client.query(query, &[&schema, &table]).await)?;
    match rows.is_empty() {
        true => Err(format!("there is no table {schema}.{table}").into()),
        false => Ok(rows.iter().map(|row| row.get(0)).collect()),
    }
}

/// The statement that copies the row of a run, column by column.
fn copy_runs(schema: &str, columns: &[String]) -> String {
    let values = columns.iter().map(|column| match ColumnContent::of(column) {
        ColumnContent::Id => "new.id".into(),
        ColumnContent::At => "new.at".into(),
        ColumnContent::AtIfEnded => "CASE WHEN model.ended_at IS NULL THEN NULL ELSE new.at END".into(),
        ColumnContent::Parent => "new.parent".into(),
        ColumnContent::ParentOp => "CASE WHEN new.parent IS NULL THEN NULL ELSE 0 END".into(),
        ColumnContent::ParentAwaits => "CASE WHEN new.parent IS NULL THEN NULL ELSE false END".into(),
        ColumnContent::Same => format!("model.{column}"),
    });
    let values: Vec<String> = values.collect();
    format!(
        "INSERT INTO {schema}.runs ({}) SELECT {} FROM {schema}.runs AS model, \
         unnest($1::text[], $2::bigint[], $3::text[]) AS new (id, at, parent) WHERE model.id = $4",
        columns.join(", "),
        values.join(", ")
    )
}

/// The statement that copies the history of a run.
fn copy_turns(schema: &str, columns: &[String]) -> String {
    let values = columns.iter().map(|column| match column.as_str() {
        "run" => "new.id".into(),
        "at" => "new.at".into(),
        other => format!("model.{other}"),
    });
    let values: Vec<String> = values.collect();
    format!(
        "INSERT INTO {schema}.turns ({}) SELECT {} FROM unnest($1::text[], $2::bigint[]) AS new (id, at), \
         {schema}.turns AS model WHERE model.run = $3",
        columns.join(", "),
        values.join(", ")
    )
}
