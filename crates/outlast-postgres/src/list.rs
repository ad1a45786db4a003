//! Looking at what there is: runs, the counts, the workers.

use std::collections::HashMap;

use outlast_core::{Code, Counts, Report, RunId, RunView, WorkerView, WorldError};
use tokio_postgres::Row;

use crate::error::corrupt;
use crate::row::{Damaged, get, json, moment, number, run_view, text, word};
use crate::store::Store;

/// Runs as the outside sees them; those that are not there are left out.
pub(crate) async fn run_views(store: &Store, runs: &[RunId]) -> Result<HashMap<RunId, RunView>, WorldError> {
    let asked: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = store.call(&store.sql.run_views, &[&asked]).await?;
    let views = rows.iter().map(|row| run_view(row).map(|view| (view.id, view)));
    views.collect::<Result<_, Damaged>>().map_err(|why| corrupt(&store.place, &why))
}

/// How many runs are in each status.
pub(crate) async fn counts(store: &Store) -> Result<Counts, WorldError> {
    let rows = store.call(&store.sql.counts, &[]).await?;
    // Slots are summed in one statement, so no sum is negative.
    let counts = rows.iter().map(|row| Ok((word(row, 0)?, get::<i64>(row, 1)?.max(0).unsigned_abs())));
    counts.collect::<Result<_, Damaged>>().map_err(|why| corrupt(&store.place, &why))
}

/// The joined workers.
pub(crate) async fn workers(store: &Store) -> Result<Vec<WorkerView>, WorldError> {
    let rows = store.call(&store.sql.workers, &[]).await?;
    rows.iter().map(worker).collect::<Result<_, _>>().map_err(|why| corrupt(&store.place, &why))
}

fn worker(row: &Row) -> Result<WorkerView, Damaged> {
    let code: Vec<(String, u32)> = json(row, 7)?;
    let code = code.into_iter().map(|(workflow, version)| Code { workflow: workflow.into(), version });
    Ok(WorkerView {
        session: word(row, 0)?,
        host: text(row, 1)?,
        pid: number(row, 2)?,
        build: text(row, 3)?,
        joined_at: moment(row, 4)?,
        expires_at: moment(row, 5)?,
        held: number(row, 6)?,
        code: code.collect(),
        queues: json(row, 8)?,
        beat_at: moment(row, 9)?,
        report: Report::from_json(get(row, 10)?),
        version: get(row, 11)?,
    })
}
